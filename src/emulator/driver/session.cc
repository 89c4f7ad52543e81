#include "emulator/driver/session.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "emulator/driver/exploration.h"

namespace warploom::emulator {
namespace {

// cudaMalloc aligns to 256 bytes (CUDA C++ Programming Guide, "Device Memory Accesses").
constexpr std::size_t kAlignment = 256;
// Freed memory that is kept while launches are checked.
constexpr std::size_t kMostQuarantined = 64 << 20;
thread_local int current = 0;

std::size_t round_up(std::size_t bytes) {
  return std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
}

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
  static Session* session = new Session;
  return *session;
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
  void* pointer = std::aligned_alloc(kAlignment, round_up(bytes));
  if (pointer == nullptr) return nullptr;
  state.memory.add(reinterpret_cast<uint64_t>(pointer), bytes);
  state.allocated += bytes;
  allocations_[pointer] = {bytes, &state};
  return pointer;
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
    error_ = before ? format("warploom emulator: double free: the %" PRIu64 " bytes at 0x%" PRIx64
                             " were freed before",
                             range.end - range.begin, address)
                    : format("warploom emulator: free of 0x%" PRIx64 ", where no allocation of "
                             "device memory begins",
                             address);
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
  std::size_t most = options_.checks ? kMostQuarantined : 0;
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

LoadedModule* Session::load(const char* ptx) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::memcmp(ptx, "\x7f" "ELF", 4) == 0) {
    error_ = "the emulator executes PTX, and this module is a cubin; compile it with the emulator "
             "enabled";
    return nullptr;
  }
  try {
    auto module = std::make_unique<LoadedModule>(decoded_.find(ptx), current_state());
    LoadedModule* result = module.get();
    modules_[result] = std::move(module);
    return result;
  } catch (const std::exception& error) {
    error_ = std::string("the emulator cannot load this PTX: ") + error.what();
    return nullptr;
  }
}

void Session::unload(LoadedModule* module) {
  std::lock_guard<std::mutex> lock(mutex_);
  modules_.erase(module);
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

bool Session::launch(const KernelHandle& kernel, const LaunchRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string problem = options_.problem;
  if (problem.empty()) {
    KernelRun run(kernel, request, options_);
    Explored explored{run.program(), run.state().memory, run.clusters(),
                      [&](const SchedulerSource& schedulers, bool one_thread) {
                        return execute(run, schedulers, one_thread ? 1 : options_.threads);
                      }};
    if (options_.exhaustive > 0) {
      Exploration result = explore_exhaustively(explored, options_.exhaustive,
                                                options_.preemptions);
      problem = result.problem;
      exploration_ = result.json;
    } else if (options_.explore > 1) {
      Exploration result = explore(explored, options_.schedule, options_.explore);
      problem = result.problem;
      exploration_ = result.json;
    } else {
      problem = execute(run, schedulers_of(options_.schedule), options_.threads);
    }
  }
  if (!problem.empty()) error_ = "warploom emulator: " + problem;
  return problem.empty();
}

const char* Session::launch_reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  launch_reports_text_ = launch_reports_.text();
  return launch_reports_text_.c_str();
}

void Session::clear_launch_reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  launch_reports_ = JsonList();
}

const char* Session::reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  reports_text_ = reports_json(reports_);
  return reports_text_.c_str();
}

void Session::clear_reports() {
  std::lock_guard<std::mutex> lock(mutex_);
  reports_.clear();
}

void Session::set_error(const std::string& message) {
  std::lock_guard<std::mutex> lock(mutex_);
  error_ = message;
}

}  // namespace warploom::emulator
