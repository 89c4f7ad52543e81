// What looks on while a cluster executes, without a part in it: the checks (check/checker.h).

#ifndef WARPLOOM_EMULATOR_EXEC_MACHINE_OBSERVER_H_
#define WARPLOOM_EMULATOR_EXEC_MACHINE_OBSERVER_H_

#include <cstdint>

namespace warploom::emulator {

class Cta;
class Warp;

// Told what happens in a cluster without an instruction that says so.
class Observer {
 public:
  virtual ~Observer() = default;
  // All that a named barrier of the CTA waits for have arrived.
  virtual void barrier_complete(Cta& cta, uint32_t barrier) = 0;
  // The same of the cluster barrier.
  virtual void cluster_complete() = 0;
  // All lanes of a warp have exited.
  virtual void exit(Warp& warp) = 0;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_MACHINE_OBSERVER_H_
