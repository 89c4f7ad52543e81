#include "emulator/exec/launch/launch_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "emulator/base/json.h"
#include "emulator/exec/machine/describe_op.h"

namespace warploom::emulator {
namespace {

using OpCount = Counters::OpCount;
// Lines that a list of the worst has at most.
constexpr std::size_t kWorst = 5;

std::string extents(const Dim3& dim) {
  return JsonList().add(dim[0]).add(dim[1]).add(dim[2]).text();
}

// The instructions with the most of something, the worst first.
template <class Amount>
std::string worst(const Program& program, const Counters& counters, const std::string& name,
                  Amount amount) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (amount(i) != 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return amount(a) > amount(b); });
  order.resize(std::min(order.size(), kWorst));
  JsonList list;
  for (std::size_t i : order) {
    list.add(JsonObject()
                 .add("place", json_string(describe_op(program, program.ops[i])))
                 .add("executed", counters.ops()[i].executed)
                 .add(name, amount(i))
                 .text());
  }
  return list.text();
}

std::string instructions(const Program& program, const Counters& counters) {
  std::array<uint64_t, kOpClasses> classes{};
  uint64_t total = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    uint64_t executed = counters.ops()[i].executed;
    classes[static_cast<std::size_t>(op_class_of(*program.ops[i].source))] += executed;
    total += executed;
  }
  JsonObject by_class;
  for (int i = 0; i < kOpClasses; ++i) {
    uint64_t executed = classes[static_cast<std::size_t>(i)];
    if (executed != 0) by_class.add(op_class_name(static_cast<OpClass>(i)), executed);
  }
  JsonList by_warp;
  for (uint64_t executed : counters.warps()) by_warp.add(executed);
  return JsonObject()
      .add("total", total)
      .add("by_class", by_class.text())
      .add("by_warp", by_warp.text())
      .text();
}

std::string bytes(const Counters& counters) {
  JsonObject result;
  for (int i = 0; i < kPaths; ++i) {
    auto path = static_cast<Path>(i);
    const Counters::Traffic& traffic = counters.traffic(path);
    if (traffic.read == 0 && traffic.written == 0) continue;
    result.add(path_name(path), JsonObject()
                                    .add("read", traffic.read)
                                    .add("written", traffic.written)
                                    .text());
  }
  return result.text();
}

std::string bank_conflicts(const Program& program, const Counters& counters) {
  uint64_t wavefronts = 0, ideal = 0;
  for (const OpCount& count : counters.ops()) {
    wavefronts += count.wavefronts;
    ideal += count.ideal;
  }
  auto extra = [&](std::size_t i) {
    return counters.ops()[i].wavefronts - counters.ops()[i].ideal;
  };
  return JsonObject()
      .add("wavefronts", wavefronts)
      .add("extra", wavefronts - ideal)
      .add("worst", worst(program, counters, "extra", extra))
      .text();
}

std::string waits(const Program& program, const Counters& counters) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> kinds;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const OpCount& count = counters.ops()[i];
    const char* kind = waits_for(*program.ops[i].source);
    if (kind == nullptr || count.executed == 0) continue;
    kinds[kind].first += count.executed;
    kinds[kind].second += count.unready;
  }
  JsonObject result;
  for (const auto& [kind, counts] : kinds) {
    result.add(kind, JsonObject()
                         .add("executed", counts.first)
                         .add("unready", counts.second)
                         .text());
  }
  return result.text();
}

std::string tensor_work(const Program& program, const Counters& counters) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> kinds;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const OpCount& count = counters.ops()[i];
    if (count.executed == 0) continue;
    const ptx::Instruction& source = *program.ops[i].source;
    MatrixWork work = matrix_work_of(source);
    if (work.flops == 0 && count.flops == 0) continue;
    auto& [instructions, flops] = kinds[work.flops != 0 ? work.name : tensor_work_name(source)];
    instructions += count.executed;
    flops += work.flops * count.executed + count.flops;
  }
  JsonObject result;
  for (const auto& [kind, counts] : kinds) {
    result.add(kind, JsonObject()
                         .add("instructions", counts.first)
                         .add("flops", counts.second)
                         .text());
  }
  return result.text();
}

}  // namespace

std::string launch_report(const Launch& launch, const Counters& counters,
                          const std::string& problem) {
  const Program& program = launch.program;
  auto unready = [&](std::size_t i) {
    bool wait = waits_for(*program.ops[i].source) != nullptr;
    return wait ? counters.ops()[i].unready : 0;
  };
  return JsonObject()
      .add("kernel", json_string(program.function->name))
      .add("device", json_string(launch.device.arch))
      .add("grid", extents(launch.grid))
      .add("block", extents(launch.block))
      .add("cluster", extents(launch.cluster))
      .add("problem", json_string(problem))
      .add("instructions", instructions(program, counters))
      .add("bytes", bytes(counters))
      .add("bank_conflicts", bank_conflicts(program, counters))
      .add("waits", waits(program, counters))
      .add("worst_waits", worst(program, counters, "unready", unready))
      .add("tensor", tensor_work(program, counters))
      .text();
}

}  // namespace warploom::emulator
