// What the Python face of the emulator asks of its driver library beyond the API of CUDA.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "emulator/base/device.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/driver_api.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/session.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

template <class Change>
void change_options(Change change) {
  guarded(0, [&] {
    Session::instance().change_options(change);
    return 0;
  });
}

// The text that `make` returns; it lives until this thread asks for another one.
template <class Make>
const char* keep_text(Make make) {
  static thread_local std::string text;
  return guarded<const char*>("", [&] {
    text = make();
    return text.c_str();
  });
}

}  // namespace

WARPLOOM_CUDA_API int warploom_emulator_current_device() { return Session::current_device(); }

WARPLOOM_CUDA_API int warploom_emulator_set_device(int index) {
  return Session::set_current_device(index) ? abi::kSuccess : abi::kInvalidDevice;
}

WARPLOOM_CUDA_API void* warploom_emulator_allocate(std::size_t bytes) {
  return guarded<void*>(nullptr, [&] { return Session::instance().allocate(bytes); });
}

WARPLOOM_CUDA_API int warploom_emulator_release(void* pointer) {
  return guarded(abi::kInvalidValue, [&] {
    return code_of(Session::instance().release(pointer), abi::kInvalidValue);
  });
}

WARPLOOM_CUDA_API const char* warploom_emulator_error() { return Session::error().c_str(); }

WARPLOOM_CUDA_API const char* warploom_emulator_error_of(int code) {
  return Session::error_of(code);
}

WARPLOOM_CUDA_API int warploom_emulator_fail(int code, const char* why) {
  return guarded(code, [&] { return fail(code, why); });
}

WARPLOOM_CUDA_API int warploom_emulator_find_arch(const char* arch) {
  return guarded(-1, [&] { return find_arch(arch); });
}

// Multiprocessors of all devices; 0: their own. An error if there are more than allowed.
WARPLOOM_CUDA_API int warploom_emulator_set_multiprocessors(uint32_t count) {
  return set_multiprocessors(count) ? abi::kSuccess : abi::kInvalidValue;
}

// -1 behind the last parameter.
WARPLOOM_CUDA_API int64_t warploom_emulator_parameter_bytes(const void* function, int index) {
  return guarded(int64_t{-1}, [&] {
    auto parameter = Session::instance().parameter(function, static_cast<std::size_t>(index));
    return parameter ? static_cast<int64_t>(parameter->bytes) : -1;
  });
}

// The PTX type of a parameter, such as "u64"; "" behind the last one.
WARPLOOM_CUDA_API const char* warploom_emulator_parameter_type(const void* function, int index) {
  return guarded<const char*>("", [&] {
    auto parameter = Session::instance().parameter(function, static_cast<std::size_t>(index));
    return parameter ? type_name(parameter->type).data() : "";
  });
}

WARPLOOM_CUDA_API void warploom_emulator_set_seed(uint64_t seed) {
  change_options([&](LaunchOptions& options) { options.schedule.seed = seed; });
}

WARPLOOM_CUDA_API void warploom_emulator_set_instruction_limit(uint64_t limit) {
  change_options([&](LaunchOptions& options) { options.instruction_limit = limit; });
}

// Success, or an error if there is no strategy of this name (exec/schedule/schedule.h).
WARPLOOM_CUDA_API int warploom_emulator_set_schedule(const char* name) {
  return guarded(abi::kInvalidValue, [&] {
    Strategy strategy;
    if (name == nullptr || !find_strategy(name, &strategy)) return abi::kInvalidValue;
    change_options([&](LaunchOptions& options) { options.schedule.strategy = strategy; });
    return abi::kSuccess;
  });
}

// 0: as many as the host has processors.
WARPLOOM_CUDA_API void warploom_emulator_set_threads(uint32_t threads) {
  const uint32_t most = std::min<uint32_t>(threads, kMostHostThreads);
  change_options(
      [&](LaunchOptions& options) { options.threads = most != 0 ? most : host_threads(); });
}

// 0: no limit, as what is not a positive number.
WARPLOOM_CUDA_API void warploom_emulator_set_seconds(double seconds) {
  change_options([&](LaunchOptions& options) { options.seconds = seconds > 0 ? seconds : 0; });
}

WARPLOOM_CUDA_API uint64_t warploom_emulator_instructions() {
  return guarded(uint64_t{0}, [] { return Session::instance().instructions(); });
}

WARPLOOM_CUDA_API void warploom_emulator_set_report(int on) {
  change_options([&](LaunchOptions& options) { options.report = on != 0; });
}

WARPLOOM_CUDA_API const char* warploom_emulator_launch_reports() {
  return keep_text([] { return Session::instance().launch_reports(); });
}

WARPLOOM_CUDA_API void warploom_emulator_clear_launch_reports() {
  guarded(0, [] { return Session::instance().clear_launch_reports(), 0; });
}

// Every later launch is executed under so many schedules; 0 and 1 mean one.
WARPLOOM_CUDA_API void warploom_emulator_set_explore(int64_t count) {
  change_options([&](LaunchOptions& options) {
    options.explore = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  });
}

// A systematic search for every later launch; 0 schedules end it.
WARPLOOM_CUDA_API void warploom_emulator_set_exhaustive(int64_t schedules, int preemptions) {
  change_options([&](LaunchOptions& options) {
    options.exhaustive = static_cast<uint64_t>(std::max<int64_t>(schedules, 0));
    options.preemptions = static_cast<uint32_t>(std::max(preemptions, 0));
  });
}

WARPLOOM_CUDA_API const char* warploom_emulator_exploration() {
  return keep_text([] { return Session::instance().exploration(); });
}

WARPLOOM_CUDA_API void warploom_emulator_set_checks(int on) {
  change_options([&](LaunchOptions& options) { options.checks = on != 0; });
}

WARPLOOM_CUDA_API const char* warploom_emulator_reports() {
  return keep_text([] { return Session::instance().reports(); });
}

WARPLOOM_CUDA_API void warploom_emulator_clear_reports() {
  guarded(0, [] { return Session::instance().clear_reports(), 0; });
}
