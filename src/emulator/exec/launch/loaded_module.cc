#include "emulator/exec/launch/loaded_module.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "emulator/base/fault.h"
#include "emulator/exec/machine/call_form.h"
#include "emulator/ptx/sizes.h"

namespace warploom::emulator {
namespace {

// As memory that a program allocates.
constexpr uint64_t kAlignment = 256;

// Where the names in initial values are.
class Addresses {
 public:
  Addresses(const ptx::Module& module, uint64_t base) : module_(module), base_(base) {
    for (const ptx::Variable* variable : module.globals) variables_[variable->name] = variable;
  }

  uint64_t find(const ptx::Relocation& relocation) const {
    int function = module_.find_function(relocation.name);
    if (function >= 0) return function_address(function);
    auto variable = variables_.find(relocation.name);
    if (variable == variables_.end()) {
      fault("an initial value refers to '%s', which the module does not define",
            relocation.name.c_str());
    }
    return base_ + variable->second->offset + static_cast<uint64_t>(relocation.addend);
  }

 private:
  const ptx::Module& module_;
  uint64_t base_;
  std::unordered_map<std::string_view, const ptx::Variable*> variables_;
};

}  // namespace

LoadedModule::LoadedModule(std::shared_ptr<const DecodedModule> module, DeviceState& state)
    : state_(state), module_(std::move(module)) {
  const ptx::Module& source = module_->source();
  std::string why_not = why_not_on(*state.device, source.target);
  if (!why_not.empty()) fault("%s", why_not.c_str());
  if (source.declares("malloc")) state_.heap.prepare();
  if (source.global_bytes == 0) return;
  uint64_t alignment = kAlignment;
  for (const ptx::Variable* variable : source.globals) {
    alignment = std::max<uint64_t>(alignment, variable->alignment);
  }
  // The host gives memory for large variables when they are touched, and not before.
  storage_.reset(static_cast<uint8_t*>(std::calloc(source.global_bytes + alignment, 1)));
  if (storage_ == nullptr) {
    fault("the host has no %" PRIu64 " bytes for the variables of the module", source.global_bytes);
  }
  base_ = align_size(reinterpret_cast<uintptr_t>(storage_.get()), alignment);
  const Addresses addresses(source, base_);
  for (const ptx::Variable* variable : source.globals) {
    auto* place = reinterpret_cast<uint8_t*>(base_ + variable->offset);
    std::copy(variable->initial.begin(), variable->initial.end(), place);
    for (const ptx::Relocation& relocation : variable->relocations) {
      uint64_t address = addresses.find(relocation);
      std::memcpy(place + relocation.at, &address, sizeof(address));
    }
  }
  state_.memory.add(base_, source.global_bytes);
}

const ptx::Variable* LoadedModule::find_variable(const std::string& name) const {
  for (const ptx::Variable* variable : module_->source().globals) {
    if (variable->name == name) return variable;
  }
  return nullptr;
}

LoadedModule::~LoadedModule() {
  if (base_ != 0) state_.memory.remove(base_);
}

}  // namespace warploom::emulator
