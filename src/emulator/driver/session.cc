#include "emulator/driver/session.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "emulator/exec/grid.h"
#include "emulator/ptx/parser.h"

namespace warploom::emulator {
namespace {

// cudaMalloc aligns to 256 bytes (CUDA C++ Programming Guide, "Device Memory Accesses").
constexpr std::size_t kAlignment = 256;
// Warp instructions of one launch: minutes of emulation.
constexpr uint64_t kInstructionLimit = uint64_t{4} << 30;

uint64_t number_from_environment(const char* name, uint64_t missing) {
  const char* text = std::getenv(name);
  return text == nullptr ? missing : std::strtoull(text, nullptr, 0);
}

std::size_t round_up(std::size_t bytes) {
  return std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
}

}  // namespace

LoadedModule::LoadedModule(const char* ptx, GlobalMemory& memory)
    : memory_(memory), module_(ptx::parse(ptx)) {
  for (const ptx::Function& function : module_->functions) {
    programs_[function.name] = decode(*module_, function);
  }
  globals_.resize(module_->global_bytes + 2 * kAlignment);
  base_ = round_up(reinterpret_cast<uintptr_t>(globals_.data()));
  for (const ptx::Variable* variable : module_->globals) {
    std::copy(variable->initial.begin(), variable->initial.end(),
              reinterpret_cast<uint8_t*>(base_ + variable->offset));
  }
  if (module_->global_bytes != 0) memory_.add(base_, module_->global_bytes);
}

LoadedModule::~LoadedModule() { memory_.remove(base_); }

const Program* LoadedModule::find(const std::string& name) const {
  auto entry = programs_.find(name);
  return entry == programs_.end() ? nullptr : entry->second.get();
}

Session::Session()
    : seed_(number_from_environment("WARPLOOM_EMULATOR_SEED", 1)),
      instruction_limit_(
          number_from_environment("WARPLOOM_EMULATOR_INSTRUCTIONS", kInstructionLimit)) {}

Session& Session::instance() {
  // Never destroyed: TVM releases device memory and modules while the process ends.
  static Session* session = new Session;
  return *session;
}

void* Session::allocate(std::size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  void* pointer = std::aligned_alloc(kAlignment, round_up(bytes));
  if (pointer == nullptr) return nullptr;
  memory_.add(reinterpret_cast<uint64_t>(pointer), bytes);
  sizes_[pointer] = bytes;
  allocated_ += bytes;
  return pointer;
}

void Session::release(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto entry = sizes_.find(pointer);
  if (entry == sizes_.end()) return;
  allocated_ -= entry->second;
  memory_.remove(reinterpret_cast<uint64_t>(pointer));
  sizes_.erase(entry);
  std::free(pointer);
}

LoadedModule* Session::load(const char* ptx) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::memcmp(ptx, "\x7f" "ELF", 4) == 0) {
    error_ = "the emulator executes PTX, and this module is a cubin; compile it with the emulator "
             "enabled";
    return nullptr;
  }
  try {
    auto module = std::make_unique<LoadedModule>(ptx, memory_);
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

bool Session::launch(const KernelHandle& kernel, const LaunchRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  const ptx::Function& function = *kernel.program->function;
  // Tensor maps among the parameters are aligned to 64 bytes or more.
  std::vector<uint8_t> storage(function.parameter_bytes + kAlignment);
  auto* parameters =
      reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(storage.data())));
  for (std::size_t i = 0; i < function.parameters.size(); ++i) {
    const ptx::Variable& parameter = *function.parameters[i];
    std::memcpy(parameters + parameter.offset, request.arguments[i], parameter.bytes);
  }
  Dim3 cluster = request.cluster;
  if (function.required_cluster[0] != 0) {
    std::copy_n(function.required_cluster, 3, cluster.begin());
  }
  Launch launch{*kernel.program, memory_,    request.grid,
                request.block,   cluster,    request.dynamic_shared,
                parameters,      kernel.module->global_base(),
                Random(seed_),   instruction_limit_};
  bool good = true;
  try {
    run_grid(launch);
  } catch (const std::exception& error) {
    error_ = std::string("warploom emulator: ") + error.what();
    good = false;
  }
  instructions_ += instruction_limit_ - launch.instructions_left;
  return good;
}

void Session::set_error(const std::string& message) {
  std::lock_guard<std::mutex> lock(mutex_);
  error_ = message;
}

}  // namespace warploom::emulator
