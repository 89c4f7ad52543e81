#include "emulator/driver/session.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "emulator/base/fault.h"
#include "emulator/driver/fork_guard.h"
#include "emulator/exec/launch/exploration.h"
#include "emulator/image/image.h"

namespace warploom::emulator {
namespace {

thread_local int current = 0;

// What went wrong last in a thread; the code is not known until the call that failed ends.
struct LastError {
  std::string text = "no error";
  std::optional<int> code;
};
thread_local LastError last_error;

// WARPLOOM_EMULATOR_LOG=1: programs that keep the reason of a failure to themselves still show it.
bool is_logged() {
  const char* wanted = std::getenv("WARPLOOM_EMULATOR_LOG");
  return wanted != nullptr && std::strcmp(wanted, "1") == 0;
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

void* Session::load(const void* image) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string what = "warploom emulator: ";
  try {
    DeviceState& state = current_state();
    const std::string ptx = image::find_ptx(image, *state.device);
    what += "the emulator cannot load this PTX: ";
    auto module = std::make_unique<LoadedModule>(decoded_.find(ptx), state);
    modules_[++last_handle_].module = std::move(module);
    return as_handle(last_handle_);
  } catch (const std::exception& error) {
    set_error(what + error.what());
    return nullptr;
  }
}

bool Session::unload(const void* module) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = modules_.find(as_number(module));
  if (entry == modules_.end()) {
    set_error("warploom emulator: the module is not loaded, or was unloaded before");
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
    set_error("warploom emulator: the module is not loaded, or was unloaded before");
    return nullptr;
  }
  const LoadedModule* loaded = entry->second.module.get();
  const Program* program = loaded->find(name);
  if (program == nullptr) {
    set_error(std::string("warploom emulator: the module has no kernel '") + name + "'");
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
  const ptx::Variable& parameter = *parameters[index];
  return ParameterFacts{parameter.bytes, parameter.offset, parameter.type};
}

std::optional<FunctionFacts> Session::facts(const void* function) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const KernelHandle* kernel = find_kernel(function);
  if (kernel == nullptr) return std::nullopt;
  return FunctionFacts{kernel->program->function, kernel->program->static_shared};
}

std::vector<std::string> Session::kernel_names(const void* module) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = modules_.find(as_number(module));
  if (entry != modules_.end()) return entry->second.module->kernel_names();
  set_error("warploom emulator: the module is not loaded, or was unloaded before");
  return {};
}

std::optional<MemoryFacts> Session::variable(const void* module, const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = modules_.find(as_number(module));
  if (entry == modules_.end()) {
    set_error("warploom emulator: the module is not loaded, or was unloaded before");
    return std::nullopt;
  }
  const ptx::Variable* variable = entry->second.module->find_variable(name);
  if (variable == nullptr) {
    set_error("warploom emulator: the module has no variable '" + name + "'");
    return std::nullopt;
  }
  MemoryFacts facts;
  facts.begin = entry->second.module->global_base() + variable->offset;
  facts.bytes = variable->bytes;
  return facts;
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

void Session::set_error(const std::string& message) {
  last_error = {message, std::nullopt};
  if (is_logged()) std::fprintf(stderr, "%s\n", message.c_str());
}

void Session::set_error_code(int code) { last_error.code = code; }

const std::string& Session::error() { return last_error.text; }

const char* Session::error_of(int code) {
  const bool is_it = last_error.code ? *last_error.code == code : last_error.text != "no error";
  return is_it ? last_error.text.c_str() : nullptr;
}

}  // namespace warploom::emulator
