#include "emulator/check/shadow.h"

namespace warploom::emulator {

uint32_t ReadPool::take() {
  if (free_.empty()) {
    lists_.emplace_back();
    return static_cast<uint32_t>(lists_.size());
  }
  uint32_t index = free_.back();
  free_.pop_back();
  return index;
}

void ReadPool::give_back(uint32_t index) {
  at(index).clear();
  free_.push_back(index);
}

Shadow::Block& Shadow::split(Cell& cell) {
  if (cell.split != 0) return *blocks_[cell.split - 1];
  uint32_t index;
  if (free_blocks_.empty()) {
    blocks_.push_back(std::make_unique<Block>());
    index = static_cast<uint32_t>(blocks_.size());
  } else {
    index = free_blocks_.back();
    free_blocks_.pop_back();
  }
  Block& block = *blocks_[index - 1];
  for (Cell& byte : block) {
    byte.write = cell.write;
    byte.read = cell.read;
    byte.more = 0;
    if (cell.more != 0) {
      byte.more = reads_.take();
      reads_.at(byte.more) = reads_.at(cell.more);
    }
  }
  clear_reads(cell);
  cell.write = Access{};
  cell.split = index;
  return block;
}

void Shadow::merge(Cell& cell, const Access& write) {
  Access kept = write;
  for (Cell& byte : *blocks_[cell.split - 1]) clear_reads(byte);
  free_blocks_.push_back(cell.split);
  cell.split = 0;
  cell.write = kept;
}

}  // namespace warploom::emulator
