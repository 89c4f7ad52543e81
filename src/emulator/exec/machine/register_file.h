// The registers of a CTA: what its launch gives to each warp, and what setmaxnreg moves.
//
// PTX does not say how many registers a thread has at the launch: ptxas chooses. With launch bounds
// it takes all that the bounds leave it when a kernel has setmaxnreg, so that is what is counted:
// .maxnreg, or the register file divided by the threads of .maxntid or .reqntid and by the CTAs of
// .minnctapersm, in steps of 8. Without bounds it cannot be more than what the block leaves.

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_REGISTER_FILE_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_REGISTER_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/ptx/module.h"

namespace warploom::emulator {

// Registers of a thread, as above, for blocks of this many threads.
uint32_t launch_registers(const ptx::Function& function, uint32_t threads);

// A setmaxnreg instruction.
struct RegisterChange {
  uint32_t count = 0;  // registers of a thread
  bool increases = false;

  bool operator==(const RegisterChange& other) const {
    return count == other.count && increases == other.increases;
  }
};

class RegisterFile {
 public:
  RegisterFile(const ptx::Function& function, uint32_t threads);

  // A warp executes setmaxnreg; false if it has to wait until others give back registers. It asks
  // again then. A Fault if the warps of a warpgroup do not all execute the same instructions.
  bool change(uint32_t warp, RegisterChange change);
  // A warp has exited, which gives back nothing: PTX knows setmaxnreg.dec only. A Fault if it owes
  // its warpgroup a change.
  void exit(uint32_t warp);

  // For the report of a deadlock: what a warp waits for, and who holds the registers.
  std::string describe(uint32_t warp, uint32_t wanted) const;

 private:
  static constexpr uint32_t kGroup = 4;  // warps of a warpgroup

  struct WarpShare {
    uint32_t count = 0;         // registers of a thread
    std::size_t changes = 0;    // that it has executed, or waits in
    bool waits = false;
    bool exited = false;
  };

  void note(uint32_t warp, RegisterChange change);

  uint32_t at_launch_;
  bool is_bounded_;        // the kernel has launch bounds
  uint32_t free_ = 0;      // registers of a thread, summed over warps
  std::vector<WarpShare> warps_;
  std::vector<std::vector<RegisterChange>> changes_;  // of each warpgroup
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_REGISTER_FILE_H_
