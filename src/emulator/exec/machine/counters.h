// What a cluster does, counted for the report of a launch. Absent unless a report is asked for.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_COUNTERS_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_COUNTERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/exec/machine/program.h"
#include "emulator/ptx/op_facts.h"

namespace warploom::emulator {

// Ways that bytes take.
enum class Path : uint8_t {
  kGlobal,             // ld, st, atom and red, as kShared, kDistributedShared and kLocal
  kShared,             // of the own CTA
  kDistributedShared,  // of another CTA of the cluster
  kLocal,
  kCopyAsync,          // cp.async
  kBulk,               // cp.async.bulk and its reductions
  kTensorMap,          // the same with a tensor map
  kTensorMemory,       // tcgen05.ld, st and cp
};
constexpr int kPaths = 8;
const char* path_name(Path path);

// How each instruction of a program goes to memory: made once for a launch.
std::vector<LaneAccess> lane_accesses_of(const Program& program);

class Counters {
 public:
  struct OpCount {
    uint64_t executed = 0;
    uint64_t unready = 0;      // times that it had to wait
    uint64_t wavefronts = 0;   // of shared memory
    uint64_t ideal = 0;        // of these, if there were no bank conflicts
    uint64_t flops = 0;        // reported while it executes
  };

  struct Traffic {
    uint64_t read = 0;     // bytes
    uint64_t written = 0;
  };

  // `accesses` must outlive the counters.
  Counters(const Program& program, const std::vector<LaneAccess>& accesses);

  // Around the execution of every instruction: before, since it may overwrite its own addresses.
  void before(const Warp& warp, const Op& op, uint32_t lanes);
  void after(const Warp& warp, const Op& op, Step step);

  // Called by asynchronous operations for what they move and compute.
  void moved(Path path, uint64_t read, uint64_t written);
  // One instruction of a warp, whose lanes go to memory that begins at an address.
  void accessed(const Warp& warp, ptx::Space space, uint64_t address, uint64_t read,
                uint64_t written);
  void tensor_work(const Op& op, uint64_t flops) { ops_[index(op)].flops += flops; }

  void add(const Counters& other);

  const std::vector<OpCount>& ops() const { return ops_; }
  const std::vector<uint64_t>& warps() const { return warps_; }
  const Traffic& traffic(Path path) const { return traffic_[static_cast<std::size_t>(path)]; }

 private:
  std::size_t index(const Op& op) const;
  void access(const Warp& warp, const Op& op, const LaneAccess& form, uint32_t lanes);
  void shared_access(const LaneAccess& form, const uint32_t* addresses, uint32_t lanes,
                     OpCount* count) const;

  const Program* program_;
  const std::vector<LaneAccess>* accesses_;
  std::vector<OpCount> ops_;      // of each of Program::ops
  std::vector<uint64_t> warps_;   // instructions by number of the warp in its CTA
  std::array<Traffic, kPaths> traffic_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_COUNTERS_H_
