#include "emulator/exec/launch/options.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

// Warp instructions of one launch: minutes of emulation.
constexpr uint64_t kInstructionLimit = uint64_t{4} << 30;

void read_number(const char* name, uint64_t* value, std::string* problem) {
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  char* end = nullptr;
  errno = 0;
  uint64_t number = std::strtoull(text, &end, 0);
  if (*text < '0' || *text > '9' || *end != '\0' || errno != 0) {
    *problem = format("%s is '%s'; a whole number from 0 to 2^64 - 1 is needed", name, text);
    return;
  }
  *value = number;
}

void read_seconds(const char* name, double* value, std::string* problem) {
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  char* end = nullptr;
  double number = std::strtod(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(number) || number < 0) {
    *problem = format("%s is '%s'; a number of seconds is needed, 0 for no limit", name, text);
    return;
  }
  *value = number;
}

void read_strategy(const char* name, Strategy* value, std::string* problem) {
  const char* text = std::getenv(name);
  if (text == nullptr || find_strategy(text, value)) return;
  std::string names;
  for (int i = 0; i < kStrategies; ++i) {
    names += std::string(i == 0 ? "" : ", ") + strategy_name(static_cast<Strategy>(i));
  }
  *problem = format("%s is '%s'; allowed are %s", name, text, names.c_str());
}

}  // namespace

LaunchOptions options_from_environment() {
  LaunchOptions options;
  std::string* problem = &options.problem;
  options.instruction_limit = kInstructionLimit;
  read_strategy("WARPLOOM_EMULATOR_SCHEDULE", &options.schedule.strategy, problem);
  read_number("WARPLOOM_EMULATOR_SEED", &options.schedule.seed, problem);
  read_number("WARPLOOM_EMULATOR_INSTRUCTIONS", &options.instruction_limit, problem);
  uint64_t threads = 0;
  read_number("WARPLOOM_EMULATOR_THREADS", &threads, problem);
  options.threads =
      threads == 0 ? host_threads() : static_cast<uint32_t>(std::min<uint64_t>(threads, kMostHostThreads));
  uint64_t checks = 0;
  read_number("WARPLOOM_EMULATOR_CHECK", &checks, problem);
  options.checks = checks != 0;
  read_seconds("WARPLOOM_EMULATOR_SECONDS", &options.seconds, problem);
  return options;
}

uint32_t host_threads() { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace warploom::emulator
