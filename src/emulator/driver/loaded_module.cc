#include "emulator/driver/loaded_module.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emulator/exec/call.h"
#include "emulator/exec/fault.h"

namespace warploom::emulator {
namespace {

// As memory that a program allocates.
constexpr std::size_t kAlignment = 256;

}  // namespace

LoadedModule::LoadedModule(std::shared_ptr<const DecodedModule> module, DeviceState& state)
    : state_(state), module_(std::move(module)) {
  const ptx::Module& source = module_->source();
  std::string why_not = why_not_on(*state.device, source.target);
  if (!why_not.empty()) fault("%s", why_not.c_str());
  if (source.declares("malloc")) state_.heap.prepare();
  globals_.resize(source.global_bytes + 2 * kAlignment);
  auto start = reinterpret_cast<uintptr_t>(globals_.data());
  base_ = (start + kAlignment - 1) / kAlignment * kAlignment;
  for (const ptx::Variable* variable : source.globals) {
    auto* place = reinterpret_cast<uint8_t*>(base_ + variable->offset);
    std::copy(variable->initial.begin(), variable->initial.end(), place);
    for (const ptx::Relocation& relocation : variable->relocations) {
      uint64_t address = address_of(relocation);
      std::memcpy(place + relocation.at, &address, sizeof(address));
    }
  }
  if (source.global_bytes != 0) state_.memory.add(base_, source.global_bytes);
}

LoadedModule::~LoadedModule() { state_.memory.remove(base_); }

uint64_t LoadedModule::address_of(const ptx::Relocation& relocation) const {
  int function = module_->source().find_function(relocation.name);
  if (function >= 0) return function_address(function);
  for (const ptx::Variable* variable : module_->source().globals) {
    if (variable->name == relocation.name) {
      return base_ + variable->offset + static_cast<uint64_t>(relocation.addend);
    }
  }
  fault("an initial value refers to '%s', which the module does not define",
        relocation.name.c_str());
}

}  // namespace warploom::emulator
