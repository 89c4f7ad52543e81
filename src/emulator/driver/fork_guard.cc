#include "emulator/driver/fork_guard.h"

#include <pthread.h>

#include "emulator/driver/handles.h"
#include "emulator/driver/library.h"
#include "emulator/driver/session.h"
#include "emulator/driver/stream.h"

namespace warploom::emulator {
namespace {

// In the order in which a thread may take them one after the other.
void before() {
  libraries_mutex().lock();
  streams_mutex().lock();
  handles_mutex().lock();
  Session::instance().lock();
}

// In the parent and in the child, whose only thread is the one that has the locks.
void after() {
  Session::instance().unlock();
  handles_mutex().unlock();
  streams_mutex().unlock();
  libraries_mutex().unlock();
}

}  // namespace

void guard_forks() { pthread_atfork(before, after, after); }

}  // namespace warploom::emulator
