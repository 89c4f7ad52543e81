#include "emulator/driver/handles.h"

namespace warploom::emulator {

std::mutex& handles_mutex() {
  static auto* mutex = new std::mutex;  // never destroyed: programs end with handles in use
  return *mutex;
}

uintptr_t next_handle() {
  // Far from addresses of memory and from the handles of modules and of contexts, so that a wrong
  // handle is found.
  static uintptr_t last = uintptr_t{1} << 40;
  return last += 16;
}

}  // namespace warploom::emulator
