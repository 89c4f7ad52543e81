#include "emulator/exec/launch/kernel_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "emulator/exec/launch/interrupt.h"
#include "emulator/exec/launch/launch_report.h"
#include "emulator/exec/schedule/grid.h"
#include "emulator/ptx/sizes.h"

namespace warploom::emulator {
namespace {

// Tensor maps among the parameters are aligned to 64 bytes or more.
constexpr std::size_t kParameterAlignment = 256;

// Whether the kernel lets the next one start early (griddepcontrol.launch_dependents).
bool starts_dependents(const Program& program) {
  return std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    const std::vector<std::string>& words = op.source->modifiers;
    return op.source->opcode == "griddepcontrol" &&
           std::find(words.begin(), words.end(), "launch_dependents") != words.end();
  });
}

}  // namespace

KernelRun::KernelRun(const KernelHandle& kernel, const LaunchRequest& request,
                     const LaunchOptions& options)
    : kernel_(kernel),
      request_(request),
      options_(options),
      state_(kernel.module->state()),
      storage_(kernel.program->function->parameter_bytes + kParameterAlignment),
      heap_(state_.heap.blocks()),
      before_(request.dependent ? state_.footprints[request.stream] : nullptr) {
  const ptx::Function& function = *kernel.program->function;
  auto start = reinterpret_cast<uintptr_t>(storage_.data());
  start = (start + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
  parameters_ = reinterpret_cast<uint8_t*>(start);
  for (std::size_t i = 0; i < function.parameters.size(); ++i) {
    const ptx::Variable& parameter = *function.parameters[i];
    if (request.arguments == nullptr || request.arguments[i] == nullptr) {
      fault("%s is launched without argument %zu of its %zu: a pointer to it is null",
            function.name.c_str(), i, function.parameters.size());
    }
    std::memcpy(parameters_ + parameter.offset, request.arguments[i], parameter.bytes);
  }
  request_.arguments = nullptr;
  if (function.required_cluster[0] != 0) {
    std::copy_n(function.required_cluster, 3, request_.cluster.begin());
    request_.explicit_cluster = true;
    // What does not fit into 32 bits is more than any grid may have.
    for (std::size_t axis = 0; axis < 3 && function.blocks_are_clusters; ++axis) {
      request_.grid[axis] = static_cast<uint32_t>(std::min<uint64_t>(
          uint64_t{request_.grid[axis]} * request_.cluster[axis], UINT32_MAX));
    }
  }
}

uint64_t KernelRun::clusters() const {
  uint64_t count = 1;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const uint32_t extent = request_.cluster[axis];
    count = multiply_sizes(count, extent == 0 ? 0 : request_.grid[axis] / extent);
  }
  return count;
}

// What the next launch of the stream may not touch before griddepcontrol.wait.
void KernelRun::leave_footprint(const LaunchChecks* checks) const {
  std::shared_ptr<const MemoryFootprint>& place = state_.footprints[request_.stream];
  place = nullptr;
  if (checks == nullptr || !starts_dependents(*kernel_.program)) return;
  auto footprint = std::make_shared<MemoryFootprint>();
  footprint->kernel = kernel_.program->function->name;
  checks->global.add_to(*footprint);
  place = std::move(footprint);
}

RunResult KernelRun::execute(const SchedulerSource& schedulers, uint32_t threads) const {
  state_.heap.set_blocks(heap_);
  state_.workspace = GridWorkspace{};
  Interrupt interrupt;
  Watch watch(options_.seconds, interrupt.flag());
  Launch launch{*kernel_.program,
                *state_.device,
                state_.memory,
                request_.grid,
                request_.block,
                request_.cluster,
                request_.explicit_cluster,
                request_.dynamic_shared,
                parameters_,
                kernel_.module->global_base()};
  launch.heap = &state_.heap;
  if (request_.cooperative) launch.workspace = reinterpret_cast<uint64_t>(&state_.workspace);
  std::vector<LaneAccess> counted;
  if (options_.report) {
    counted = lane_accesses_of(*kernel_.program);
    launch.counted = &counted;
  }
  std::unique_ptr<LaunchChecks> checks;
  if (options_.checks) {
    checks = std::make_unique<LaunchChecks>();
    checks->before = before_.get();
  }

  RunResult result;
  LaunchTotals totals;
  Finding fatal = Finding::kError;
  try {
    run_grid({launch, schedulers, options_.instruction_limit, threads, watch, checks.get()},
             totals);
  } catch (const Fault& error) {
    fatal = finding_of(error.kind());
    result.problem = error.what();
  } catch (const std::exception& error) {
    result.problem = error.what();
  }
  leave_footprint(checks.get());
  const std::string ended_by = result.problem;
  if (checks != nullptr) result.findings = checks->reports.distinct();
  result.problem = describe_findings(result.findings, result.problem);
  // What ends a launch is a finding as well, the last one.
  if (!ended_by.empty()) result.findings.push_back({fatal, nullptr, nullptr, ended_by});
  result.instructions = totals.instructions;
  result.printed = launch.output.text(watch.first_failed());
  if (totals.counters != nullptr) {
    result.report = launch_report(launch, *totals.counters, result.problem);
  }
  return result;
}

}  // namespace warploom::emulator
