#include "emulator/check/launch_checks.h"

namespace warploom::emulator {

GlobalShadow::Page& GlobalShadow::page(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Page>& page = pages_[address / kPageBytes];
  if (page == nullptr) page = std::make_unique<Page>();
  return *page;
}

}  // namespace warploom::emulator
