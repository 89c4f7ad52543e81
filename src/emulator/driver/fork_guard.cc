#include "emulator/driver/fork_guard.h"

#include <pthread.h>

#include "emulator/driver/graph.h"
#include "emulator/driver/session.h"

namespace warploom::emulator {
namespace {

// In the order in which a thread may take them one after the other.
void before() {
  captures_mutex().lock();
  Session::instance().lock();
}

// In the parent and in the child, whose only thread is the one that has the locks.
void after() {
  Session::instance().unlock();
  captures_mutex().unlock();
}

}  // namespace

void guard_forks() { pthread_atfork(before, after, after); }

}  // namespace warploom::emulator
