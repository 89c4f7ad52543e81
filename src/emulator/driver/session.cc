#include "emulator/driver/session.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "emulator/check/launch_checks.h"
#include "emulator/driver/interrupt.h"
#include "emulator/exec/call.h"
#include "emulator/exec/grid.h"
#include "emulator/exec/launch_report.h"

namespace warploom::emulator {
namespace {

// cudaMalloc aligns to 256 bytes (CUDA C++ Programming Guide, "Device Memory Accesses").
constexpr std::size_t kAlignment = 256;
thread_local int current = 0;

std::size_t round_up(std::size_t bytes) {
  return std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
}

}  // namespace

LoadedModule::LoadedModule(std::shared_ptr<const DecodedModule> module, DeviceState& state)
    : state_(state), module_(std::move(module)) {
  const ptx::Module& source = module_->source();
  std::string why_not = why_not_on(*state.device, source.target);
  if (!why_not.empty()) fault("%s", why_not.c_str());
  if (source.declares("malloc")) state_.heap.prepare();
  globals_.resize(source.global_bytes + 2 * kAlignment);
  base_ = round_up(reinterpret_cast<uintptr_t>(globals_.data()));
  for (const ptx::Variable* variable : source.globals) {
    auto* place = reinterpret_cast<uint8_t*>(base_ + variable->offset);
    std::copy(variable->initial.begin(), variable->initial.end(), place);
    for (const ptx::Relocation& relocation : variable->relocations) {
      uint64_t address = address_of(relocation);
      std::memcpy(place + relocation.at, &address, sizeof(address));
    }
  }
  if (source.global_bytes != 0) state_.memory.add(base_, source.global_bytes);
}

LoadedModule::~LoadedModule() { state_.memory.remove(base_); }

uint64_t LoadedModule::address_of(const ptx::Relocation& relocation) const {
  int function = module_->source().find_function(relocation.name);
  if (function >= 0) return function_address(function);
  for (const ptx::Variable* variable : module_->source().globals) {
    if (variable->name == relocation.name) {
      return base_ + variable->offset + static_cast<uint64_t>(relocation.addend);
    }
  }
  fault("an initial value refers to '%s', which the module does not define",
        relocation.name.c_str());
}

Session::Session() : options_(options_from_environment()) {
  for (int i = 0; i < device_count(); ++i) {
    devices_.push_back(std::make_unique<DeviceState>());
    DeviceState& state = *devices_.back();
    state.device = find_device(i);
    state.memory.add(reinterpret_cast<uint64_t>(&state.workspace), sizeof(state.workspace));
  }
}

Session& Session::instance() {
  // Never destroyed: TVM releases device memory and modules while the process ends.
  static Session* session = new Session;
  return *session;
}

int Session::current_device() { return current; }

bool Session::set_current_device(int index) {
  if (find_device(index) == nullptr) return false;
  current = index;
  return true;
}

DeviceState& Session::current_state() {
  if (devices_.empty()) fault("there is no emulated device");
  return *devices_[static_cast<std::size_t>(current)];
}

void* Session::allocate(std::size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (devices_.empty()) return nullptr;
  DeviceState& state = current_state();
  void* pointer = std::aligned_alloc(kAlignment, round_up(bytes));
  if (pointer == nullptr) return nullptr;
  state.memory.add(reinterpret_cast<uint64_t>(pointer), bytes);
  state.allocated += bytes;
  allocations_[pointer] = {bytes, &state};
  return pointer;
}

void Session::release(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = allocations_.find(pointer);
  if (entry == allocations_.end()) return;
  DeviceState& state = *entry->second.state;
  state.allocated -= entry->second.bytes;
  state.memory.remove(reinterpret_cast<uint64_t>(pointer));
  allocations_.erase(entry);
  std::free(pointer);
}

std::size_t Session::allocated() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return devices_.empty() ? 0 : devices_[static_cast<std::size_t>(current)]->allocated;
}

LoadedModule* Session::load(const char* ptx) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::memcmp(ptx, "\x7f" "ELF", 4) == 0) {
    error_ = "the emulator executes PTX, and this module is a cubin; compile it with the emulator "
             "enabled";
    return nullptr;
  }
  try {
    auto module = std::make_unique<LoadedModule>(decoded_.find(ptx), current_state());
    LoadedModule* result = module.get();
    modules_[result] = std::move(module);
    return result;
  } catch (const std::exception& error) {
    error_ = std::string("the emulator cannot load this PTX: ") + error.what();
    return nullptr;
  }
}

void Session::unload(LoadedModule* module) {
  std::lock_guard<std::mutex> lock(mutex_);
  modules_.erase(module);
}

bool Session::launch(const KernelHandle& kernel, const LaunchRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  const ptx::Function& function = *kernel.program->function;
  // Tensor maps among the parameters are aligned to 64 bytes or more.
  std::vector<uint8_t> storage(function.parameter_bytes + kAlignment);
  auto* parameters =
      reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(storage.data())));
  for (std::size_t i = 0; i < function.parameters.size(); ++i) {
    const ptx::Variable& parameter = *function.parameters[i];
    std::memcpy(parameters + parameter.offset, request.arguments[i], parameter.bytes);
  }
  Dim3 cluster = request.cluster;
  if (function.required_cluster[0] != 0) {
    std::copy_n(function.required_cluster, 3, cluster.begin());
  }
  DeviceState& state = kernel.module->state();
  if (!options_.problem.empty()) {
    error_ = "warploom emulator: " + options_.problem;
    return false;
  }
  Interrupt interrupt;
  Watch watch(options_.seconds, interrupt.flag());
  Launch launch{*kernel.program,
                *state.device,
                state.memory,
                request.grid,
                request.block,
                cluster,
                request.dynamic_shared,
                parameters,
                kernel.module->global_base(),
                schedulers_of(options_.schedule),
                options_.instruction_limit,
                options_.threads,
                watch};
  LaunchTotals totals;
  std::vector<LaneAccess> counted;
  if (options_.report) counted = lane_accesses_of(*kernel.program);
  if (options_.report) launch.counted = &counted;
  std::unique_ptr<LaunchChecks> checks;
  if (options_.checks) checks = std::make_unique<LaunchChecks>();
  launch.checks = checks.get();
  std::string problem;
  launch.heap = &state.heap;
  state.workspace = GridWorkspace{};
  if (request.cooperative) launch.workspace = reinterpret_cast<uint64_t>(&state.workspace);
  try {
    run_grid(launch, totals);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  std::string printed = launch.output.text(watch.first_failed());
  std::fwrite(printed.data(), 1, printed.size(), stdout);
  if (!printed.empty()) std::fflush(stdout);
  // What was found first is often the cause of what went wrong later.
  if (checks != nullptr) problem = keep_reports(checks->reports, problem);
  if (totals.counters != nullptr) {
    launch_reports_.add(launch_report(launch, *totals.counters, problem));
  }
  bool good = problem.empty();
  if (!good) error_ = "warploom emulator: " + problem;
  instructions_ += totals.instructions;
  return good;
}

std::string Session::keep_reports(const LaunchReports& launch, const std::string& problem) {
  std::vector<Report> found = launch.distinct();
  if (found.empty()) return problem;
  std::string text = found.front().text;
  if (found.size() > 1) text += format(" (and %zu other findings)", found.size() - 1);
  if (!problem.empty()) text += "\nThe launch ended with: " + problem;
  reports_.insert(reports_.end(), found.begin(), found.end());
  return text;
}

const char* Session::launch_reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  launch_reports_text_ = launch_reports_.text();
  return launch_reports_text_.c_str();
}

void Session::clear_launch_reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  launch_reports_ = JsonList();
}

const char* Session::reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  reports_text_ = reports_json(reports_);
  return reports_text_.c_str();
}

void Session::clear_reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  reports_.clear();
}

void Session::set_error(const std::string& message) {
  std::lock_guard<std::mutex> lock(mutex_);
  error_ = message;
}

}  // namespace warploom::emulator
