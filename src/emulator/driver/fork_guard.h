// fork while other threads use the emulator.

#ifndef WARPLOOM_EMULATOR_DRIVER_FORK_GUARD_H_
#define WARPLOOM_EMULATOR_DRIVER_FORK_GUARD_H_

namespace warploom::emulator {

// From now on fork waits until no thread changes the state of the emulator, so that the child gets
// it whole and with its locks free. A launch of another thread ends before the fork then. vfork and
// posix_spawn, whose child executes another program, do not wait.
void guard_forks();

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_FORK_GUARD_H_
