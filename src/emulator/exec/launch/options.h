// How kernels are executed, whatever they do.

#ifndef WARPLOOM_EMULATOR_EXEC_LAUNCH_OPTIONS_H_
#define WARPLOOM_EMULATOR_EXEC_LAUNCH_OPTIONS_H_

#include <cstdint>
#include <string>

#include "emulator/exec/schedule/schedule.h"

namespace warploom::emulator {

struct LaunchOptions {
  Schedule schedule;               // WARPLOOM_EMULATOR_SCHEDULE, WARPLOOM_EMULATOR_SEED
  uint64_t instruction_limit = 0;  // WARPLOOM_EMULATOR_INSTRUCTIONS: of the warps of a launch
  uint32_t threads = 1;            // WARPLOOM_EMULATOR_THREADS: of the host, at most
  double seconds = 0;              // WARPLOOM_EMULATOR_SECONDS: of a launch; 0: no limit
  bool checks = false;             // WARPLOOM_EMULATOR_CHECK: for races and misuse
  bool report = false;             // whether launches are counted for a report
  uint64_t explore = 0;            // schedules that a launch is executed under; 0 and 1: one
  uint64_t exhaustive = 0;         // schedules of a systematic search at most; 0: none
  uint32_t preemptions = 0;        // of a schedule of that search at most
  std::string problem;             // with these variables; every launch fails with it
};

// The options that a process starts with.
LaunchOptions options_from_environment();

// Threads that a launch may have.
constexpr uint32_t kMostHostThreads = 1024;

// Threads that the host executes at a time.
uint32_t host_threads();

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_LAUNCH_OPTIONS_H_
