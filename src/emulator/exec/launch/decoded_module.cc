#include "emulator/exec/launch/decoded_module.h"

#include <cinttypes>
#include <cstdint>
#include <utility>

#include "emulator/base/fault.h"
#include "emulator/exec/launch/decode.h"
#include "emulator/ptx/limits.h"
#include "emulator/ptx/parser.h"

namespace warploom::emulator {

DecodedModule::DecodedModule(std::string_view ptx) : module_(ptx::parse(ptx)) {
  CallGraph calls(*module_);
  check_instructions(calls);
  for (const ptx::Function& function : module_->functions) {
    if (function.is_entry) programs_[function.name] = decode(*module_, calls, function);
  }
}

// Functions are decoded once for every entry that can reach them.
void DecodedModule::check_instructions(CallGraph& calls) const {
  uint64_t count = 0;
  for (const ptx::Function& function : module_->functions) {
    if (!function.is_entry) continue;
    count += calls.count_instructions(function, ptx::kMostInstructions);
    if (count > ptx::kMostInstructions) {
      fault("line %d: with %s the kernels of the module, each with the functions that it calls, "
            "have %" PRIu64 " instructions or more; at most %" PRIu64 " are allowed",
            function.line, function.name.c_str(), count, ptx::kMostInstructions);
    }
  }
}

const Program* DecodedModule::find(const std::string& name) const {
  auto entry = programs_.find(name);
  return entry == programs_.end() ? nullptr : entry->second.get();
}

std::vector<std::string> DecodedModule::kernel_names() const {
  std::vector<std::string> names;
  for (const auto& [name, program] : programs_) names.push_back(name);
  return names;
}

std::shared_ptr<const DecodedModule> DecodedModules::find(std::string_view ptx) {
  std::string key(ptx);
  auto known = modules_.find(key);
  if (known != modules_.end()) return known->second;
  auto module = std::make_shared<const DecodedModule>(ptx);
  while (!oldest_.empty() && bytes_ + key.size() > kMostBytes) {
    bytes_ -= oldest_.front().size();
    modules_.erase(oldest_.front());
    oldest_.pop_front();
  }
  if (key.size() <= kMostBytes) {
    bytes_ += key.size();
    oldest_.push_back(key);
    modules_.emplace(std::move(key), module);
  }
  return module;
}

}  // namespace warploom::emulator
