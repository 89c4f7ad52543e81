#include "emulator/check/launch_checks.h"

namespace warploom::emulator {
namespace {

// Collects ranges that follow one another before they are added.
class RangeRun {
 public:
  explicit RangeRun(AddressRanges& ranges) : ranges_(ranges) {}
  ~RangeRun() { flush(); }

  void add(uint64_t begin, uint64_t end) {
    if (begin != end_) {
      flush();
      begin_ = begin;
    }
    end_ = end;
  }

 private:
  void flush() {
    if (begin_ != end_) ranges_.add(begin_, end_);
  }

  AddressRanges& ranges_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
};

}  // namespace

GlobalShadow::Page& GlobalShadow::page(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Page>& page = pages_[address / kPageBytes];
  if (page == nullptr) page = std::make_unique<Page>();
  return *page;
}

void GlobalShadow::add_to(MemoryFootprint& footprint) const {
  for (const auto& [number, page] : pages_) {
    const uint64_t base = number * kPageBytes;
    RangeRun written(footprint.written), read(footprint.read);
    page->shadow.for_each([&](const Cell& cell, uint32_t begin, uint32_t end) {
      if (cell.write.present()) written.add(base + begin, base + end);
      if (cell.read.present()) read.add(base + begin, base + end);
    });
  }
}

}  // namespace warploom::emulator
