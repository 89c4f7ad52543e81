// What the checker remembers of every byte: its last write, and the reads since then.
//
// A cell stands for 16 bytes as long as all accesses cover them together, and for one byte after
// the first that does not.

#ifndef WARPLOOM_EMULATOR_CHECK_SHADOW_H_
#define WARPLOOM_EMULATOR_CHECK_SHADOW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/check/clock.h"
#include "emulator/check/ordering.h"

namespace warploom::emulator {

struct Access {
  enum Flag : uint8_t {
    kAsyncProxy = 1,  // TMA, bulk copies, wgmma, tcgen05
    kStrong = 2,      // atomic, volatile, relaxed and stronger: no race with another in its scope
    kBarrier = 4,     // mbarrier.init: an mbarrier lies here
    kNeedsFence = 8,  // a write that the async proxy sees only after a proxy fence
  };
  static constexpr int kScopeShift = 4;  // above the flags: the scope of a strong access
  uint32_t clock = 0;      // 0: there is none
  uint32_t cluster = 0;    // linear index
  uint32_t op : 24;        // index in the program
  uint32_t flags : 8;
  uint16_t dimension = 0;
  uint16_t thread = 0;     // 32 * warp in the cluster + lane

  Access() : op(0), flags(0) {}
  bool present() const { return clock != 0; }
  Stamp stamp() const { return {dimension, clock}; }
  Scope scope() const { return static_cast<Scope>(flags >> kScopeShift); }
  static uint8_t strong_flags(Scope scope) {
    return static_cast<uint8_t>(kStrong | static_cast<int>(scope) << kScopeShift);
  }
};
static_assert(sizeof(Access) == 16);

// Reads beyond the first of a cell.
class ReadPool {
 public:
  std::vector<Access>& at(uint32_t index) { return lists_[index - 1]; }
  uint32_t take();
  void give_back(uint32_t index);

 private:
  std::vector<std::vector<Access>> lists_;
  std::vector<uint32_t> free_;
};

struct Cell {
  Access write;
  Access read;
  uint32_t more = 0;   // 0, or further reads in the pool
  uint32_t split = 0;  // 0, or its sixteen cells of one byte
};

// The cells of a range of addresses that starts at 0.
class Shadow {
 public:
  static constexpr uint32_t kGranule = 16;

  explicit Shadow(std::size_t bytes) : cells_((bytes + kGranule - 1) / kGranule) {}

  std::size_t bytes() const { return cells_.size() * kGranule; }
  ReadPool& reads() { return reads_; }

  // Calls visit(cell, begin, end) for cells that cover [begin, begin + count) exactly.
  template <class Visit>
  void visit(uint32_t begin, uint32_t count, Visit visit_cell);

  // The same for a write: afterwards all of these cells hold one access and nothing else.
  template <class Visit>
  void visit_write(uint32_t begin, uint32_t count, Visit visit_cell);

  // Calls visit(cell, begin, end) for all cells that hold an access, in order.
  template <class Visit>
  void for_each(Visit visit_cell) const;

  void clear_reads(Cell& cell) {
    cell.read = Access{};
    if (cell.more != 0) {
      reads_.give_back(cell.more);
      cell.more = 0;
    }
  }

 private:
  using Block = std::array<Cell, kGranule>;

  Block& split(Cell& cell);
  void merge(Cell& cell, const Access& write);

  std::vector<Cell> cells_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<uint32_t> free_blocks_;
  ReadPool reads_;
};

template <class Visit>
void Shadow::visit(uint32_t begin, uint32_t count, Visit visit_cell) {
  const uint32_t end = begin + count;
  while (begin < end) {
    Cell& cell = cells_[begin / kGranule];
    const uint32_t granule = begin / kGranule * kGranule;
    const uint32_t stop = end < granule + kGranule ? end : granule + kGranule;
    const bool whole = begin == granule && stop == granule + kGranule;
    if (whole && cell.split == 0) {
      visit_cell(cell, begin, stop);
    } else {
      Block& block = split(cell);
      for (uint32_t i = begin; i < stop; ++i) visit_cell(block[i - granule], i, i + 1);
    }
    begin = stop;
  }
}

template <class Visit>
void Shadow::for_each(Visit visit_cell) const {
  auto visit = [&](const Cell& cell, uint32_t begin, uint32_t end) {
    if (cell.write.present() || cell.read.present()) visit_cell(cell, begin, end);
  };
  for (uint32_t i = 0; i < cells_.size(); ++i) {
    const Cell& cell = cells_[i];
    const uint32_t begin = i * kGranule;
    if (cell.split == 0) {
      visit(cell, begin, begin + kGranule);
      continue;
    }
    const Block& block = *blocks_[cell.split - 1];
    for (uint32_t byte = 0; byte < kGranule; ++byte) {
      visit(block[byte], begin + byte, begin + byte + 1);
    }
  }
}

template <class Visit>
void Shadow::visit_write(uint32_t begin, uint32_t count, Visit visit_cell) {
  const uint32_t end = begin + count;
  visit(begin, count, visit_cell);
  for (uint32_t at = (begin + kGranule - 1) / kGranule; (at + 1) * kGranule <= end; ++at) {
    Cell& cell = cells_[at];
    if (cell.split != 0) merge(cell, (*blocks_[cell.split - 1])[0].write);
  }
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_SHADOW_H_
