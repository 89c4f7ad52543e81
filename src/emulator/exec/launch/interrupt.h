// Ctrl-C while a kernel is executed: Python runs its handlers only between its own instructions,
// and a launch is one of them however long it takes.

#ifndef WARPLOOM_EMULATOR_EXEC_LAUNCH_INTERRUPT_H_
#define WARPLOOM_EMULATOR_EXEC_LAUNCH_INTERRUPT_H_

#include <atomic>

namespace warploom::emulator {

// While it lives, SIGINT also raises a flag; the handler that was there is called as before. One at
// a time. A process that ignores SIGINT, or that ends by it, goes on to do so.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>* flag() const;

 private:
  bool installed_ = false;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_LAUNCH_INTERRUPT_H_
