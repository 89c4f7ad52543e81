#include "emulator/driver/session.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "emulator/base/fault.h"
#include "emulator/driver/fork_guard.h"
#include "emulator/exec/launch/exploration.h"
#include "emulator/ptx/sizes.h"

namespace warploom::emulator {
namespace {

// cudaMalloc aligns to 256 bytes (CUDA C++ Programming Guide, "Device Memory Accesses").
constexpr std::size_t kAlignment = 256;
// Memory holds anything before it is written: of each block so many bytes have a pattern, so that a
// kernel that takes them for zeros fails, and fails each time.
constexpr std::size_t kMostPoisoned = 1 << 20;
constexpr int kPoison = 0xA5;
// Freed memory that is kept while launches are checked.
constexpr std::size_t kMostQuarantined = 64 << 20;
thread_local int current = 0;
thread_local std::string last_error = "no error";

std::size_t round_up(std::size_t bytes) {
  return std::max<std::size_t>(align_size(bytes, kAlignment), kAlignment);
}

void* as_handle(uintptr_t number) { return reinterpret_cast<void*>(number); }
uintptr_t as_number(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

}  // namespace

Session::Session() : options_(options_from_environment()) {
  for (int i = 0; i < device_count(); ++i) {
    devices_.push_back(std::make_unique<DeviceState>());
    DeviceState& state = *devices_.back();
    state.device = find_device(i);
    state.memory.add(reinterpret_cast<uint64_t>(&state.workspace), sizeof(state.workspace));
  }
}

Session& Session::instance() {
  // Never destroyed: TVM releases device memory and modules while the process ends.
  static Session* session = [] {
    auto* made = new Session;
    guard_forks();
    return made;
  }();
  return *session;
}

void Session::lock() {
  mutex_.lock();
  options_mutex_.lock();
}

void Session::unlock() {
  options_mutex_.unlock();
  mutex_.unlock();
}

int Session::current_device() { return current; }

bool Session::set_current_device(int index) {
  if (find_device(index) == nullptr) return false;
  current = index;
  return true;
}

DeviceState& Session::current_state() {
  if (devices_.empty()) fault("there is no emulated device");
  return *devices_[static_cast<std::size_t>(current)];
}

void* Session::allocate(std::size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (devices_.empty()) return nullptr;
  DeviceState& state = current_state();
  if (bytes > kMemoryBytes - state.allocated) {
    set_error(format("warploom emulator: %zu bytes are asked for and %zu are allocated; the "
                     "device has %" PRIu64,
                     bytes, state.allocated, kMemoryBytes));
    return nullptr;
  }
  void* pointer = std::aligned_alloc(kAlignment, round_up(bytes));
  if (pointer == nullptr) {
    set_error(format("warploom emulator: the host has no memory for %zu bytes", bytes));
    return nullptr;
  }
  std::memset(pointer, kPoison, std::min(bytes, kMostPoisoned));
  state.memory.add(reinterpret_cast<uint64_t>(pointer), bytes);
  state.allocated += bytes;
  allocations_[pointer] = {bytes, &state};
  return pointer;
}

bool Session::copy(void* to, const void* from, std::size_t bytes, bool to_device,
                   bool from_device) {
  if (bytes == 0) return true;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!may_copy(to, bytes, to_device) || !may_copy(from, bytes, from_device)) return false;
  std::memmove(to, from, bytes);
  return true;
}

bool Session::may_copy(const void* pointer, std::size_t bytes, bool on_device) const {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  GlobalMemory::Range range, freed;
  bool near = false, was_freed = false;
  for (const auto& state : devices_) {
    if (!state->memory.nearest(address, range) || !range.contains(address, 0) ||
        address == range.end) {
      was_freed |= state->memory.was_removed(address, freed);
      continue;
    }
    if (range.contains(address, bytes)) return true;
    near = true;
    break;
  }
  if (near) {
    set_error(format("warploom emulator: a copy of %zu bytes at 0x%" PRIx64 " begins at offset %"
                     PRIu64 " of an allocation of %" PRIu64 " bytes and goes beyond its end",
                     bytes, address, address - range.begin, range.end - range.begin));
    return false;
  }
  if (!on_device) return true;
  set_error(format("warploom emulator: a copy of %zu bytes at 0x%" PRIx64 ", %s", bytes, address,
                   was_freed ? "which was freed before"
                             : "where no allocation of device memory is"));
  return false;
}

bool Session::release(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pointer == nullptr) return true;
  auto entry = allocations_.find(pointer);
  if (entry == allocations_.end()) {
    auto address = reinterpret_cast<uint64_t>(pointer);
    GlobalMemory::Range range;
    bool before = false;
    for (const auto& state : devices_) {
      before = before || (state->memory.was_removed(address, range) && range.begin == address);
    }
    set_error(before ? format("warploom emulator: double free: the %" PRIu64 " bytes at 0x%" PRIx64
                              " were freed before",
                              range.end - range.begin, address)
                     : format("warploom emulator: free of 0x%" PRIx64 ", where no allocation of "
                              "device memory begins",
                              address));
    return false;
  }
  DeviceState& state = *entry->second.state;
  state.allocated -= entry->second.bytes;
  state.memory.remove(reinterpret_cast<uint64_t>(pointer));
  quarantine(pointer, entry->second.bytes);
  allocations_.erase(entry);
  return true;
}

void Session::quarantine(void* pointer, std::size_t bytes) {
  quarantine_.emplace_back(pointer, bytes);
  quarantined_ += bytes;
  std::size_t most = options().checks ? kMostQuarantined : 0;
  while (!quarantine_.empty() && (quarantined_ > most || most == 0)) {
    std::free(quarantine_.front().first);
    quarantined_ -= quarantine_.front().second;
    quarantine_.pop_front();
  }
}

std::size_t Session::allocated() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return devices_.empty() ? 0 : devices_[static_cast<std::size_t>(current)]->allocated;
}

void* Session::load(const char* ptx) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::strncmp(ptx, "\x7f" "ELF", 4) == 0) {
    set_error("the emulator executes PTX, and this module is a cubin; compile it with the emulator "
              "enabled");
    return nullptr;
  }
  try {
    auto module = std::make_unique<LoadedModule>(decoded_.find(ptx), current_state());
    modules_[++last_handle_].module = std::move(module);
    return as_handle(last_handle_);
  } catch (const std::exception& error) {
    set_error(std::string("the emulator cannot load this PTX: ") + error.what());
    return nullptr;
  }
}

bool Session::unload(const void* module) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = modules_.find(as_number(module));
  if (entry == modules_.end()) {
    set_error("the module is not loaded, or was unloaded before");
    return false;
  }
  for (const auto& [program, function] : entry->second.functions) functions_.erase(function);
  modules_.erase(entry);
  return true;
}

void* Session::find_function(const void* module, const char* name) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = modules_.find(as_number(module));
  if (entry == modules_.end()) {
    set_error("the module is not loaded, or was unloaded before");
    return nullptr;
  }
  const LoadedModule* loaded = entry->second.module.get();
  const Program* program = loaded->find(name);
  if (program == nullptr) {
    set_error(std::string("the module has no kernel '") + name + "'");
    return nullptr;
  }
  auto [known, is_new] = entry->second.functions.try_emplace(program, last_handle_ + 1);
  if (is_new) functions_[++last_handle_] = KernelHandle{loaded, program};
  return as_handle(known->second);
}

const KernelHandle* Session::find_kernel(const void* function) const {
  auto entry = functions_.find(as_number(function));
  if (entry != functions_.end()) return &entry->second;
  set_error("warploom emulator: the kernel's module is not loaded, or was unloaded before");
  return nullptr;
}

std::optional<ParameterFacts> Session::parameter(const void* function, std::size_t index) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const KernelHandle* kernel = find_kernel(function);
  if (kernel == nullptr) return std::nullopt;
  const auto& parameters = kernel->program->function->parameters;
  if (index >= parameters.size()) return std::nullopt;
  return ParameterFacts{parameters[index]->bytes, parameters[index]->type};
}

std::string Session::execute(const KernelRun& run, const SchedulerSource& schedulers,
                             uint32_t threads) {
  RunResult result = run.execute(schedulers, threads);
  std::fwrite(result.printed.data(), 1, result.printed.size(), stdout);
  if (!result.printed.empty()) std::fflush(stdout);
  reports_.insert(reports_.end(), result.findings.begin(), result.findings.end());
  if (!result.report.empty()) launch_reports_.add(result.report);
  instructions_ += result.instructions;
  return result.problem;
}

bool Session::launch(const void* function, const LaunchRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  const KernelHandle* kernel = find_kernel(function);
  if (kernel == nullptr) return false;
  const LaunchOptions options = this->options();
  std::string problem = options.problem;
  if (problem.empty()) {
    KernelRun run(*kernel, request, options);
    Explored explored{run.program(), run.state().memory, run.clusters(),
                      [&](const SchedulerSource& schedulers, bool one_thread) {
                        return execute(run, schedulers, one_thread ? 1 : options.threads);
                      }};
    if (options.exhaustive > 0) {
      Exploration result = explore_exhaustively(explored, options.exhaustive, options.preemptions);
      problem = result.problem;
      exploration_ = result.json;
    } else if (options.explore > 1) {
      Exploration result = explore(explored, options.schedule, options.explore);
      problem = result.problem;
      exploration_ = result.json;
    } else {
      problem = execute(run, schedulers_of(options.schedule), options.threads);
    }
  }
  if (!problem.empty()) set_error("warploom emulator: " + problem);
  return problem.empty();
}

void Session::end_overlap(void* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!devices_.empty()) current_state().footprints.erase(stream);
}

LaunchOptions Session::options() const {
  std::lock_guard<std::mutex> lock(options_mutex_);
  return options_;
}

uint64_t Session::instructions() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return instructions_;
}

std::string Session::launch_reports() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return launch_reports_.text();
}

void Session::clear_launch_reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  launch_reports_ = JsonList();
}

std::string Session::exploration() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return exploration_;
}

std::string Session::reports() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reports_json(reports_);
}

void Session::clear_reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  reports_.clear();
}

void Session::set_error(const std::string& message) { last_error = message; }

const std::string& Session::error() { return last_error; }

}  // namespace warploom::emulator
