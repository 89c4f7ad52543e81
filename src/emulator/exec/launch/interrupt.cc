#include "emulator/exec/launch/interrupt.h"

#include <csignal>

namespace warploom::emulator {
namespace {

std::atomic<bool> raised{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may write no other");
struct sigaction before;

void handle(int signal, siginfo_t* info, void* context) {
  raised.store(true, std::memory_order_relaxed);
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
}

}  // namespace

Interrupt::Interrupt() {
  raised.store(false, std::memory_order_relaxed);
  if (sigaction(SIGINT, nullptr, &before) != 0) return;
  bool has_function = (before.sa_flags & SA_SIGINFO) != 0 ||
                      (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
  if (!has_function) return;
  struct sigaction ours = before;
  ours.sa_sigaction = handle;
  ours.sa_flags |= SA_SIGINFO;
  installed_ = sigaction(SIGINT, &ours, nullptr) == 0;
}

Interrupt::~Interrupt() {
  // The handler may have been replaced meanwhile, by another thread of the program.
  struct sigaction now;
  if (!installed_ || sigaction(SIGINT, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handle) {
    sigaction(SIGINT, &before, nullptr);
  }
}

const std::atomic<bool>* Interrupt::flag() const { return &raised; }

}  // namespace warploom::emulator
