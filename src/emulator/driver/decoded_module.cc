#include "emulator/driver/decoded_module.h"

#include <utility>

#include "emulator/ptx/parser.h"

namespace warploom::emulator {

DecodedModule::DecodedModule(std::string_view ptx) : module_(ptx::parse(ptx)) {
  for (const ptx::Function& function : module_->functions) {
    if (function.is_entry) programs_[function.name] = decode(*module_, function);
  }
}

const Program* DecodedModule::find(const std::string& name) const {
  auto entry = programs_.find(name);
  return entry == programs_.end() ? nullptr : entry->second.get();
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
