#include "emulator/check/lane_races.h"

#include <cstddef>

namespace warploom::emulator {

uint32_t& LaneRaces::epoch_of(uint32_t warp) {
  if (warp >= epochs_.size()) epochs_.resize(warp + 1, 1);
  return epochs_[warp];
}

LaneRaces::Word& LaneRaces::word(uint32_t rank, uint32_t offset) {
  if (rank >= words_.size()) words_.resize(rank + 1);
  std::vector<Word>& words = words_[rank];
  const std::size_t index = offset / kWordBytes;
  if (index >= words.size()) words.resize(index + index / 2 + 1);
  return words[index];
}

uint8_t LaneRaces::another(const Accesses& accesses, std::size_t byte, uint32_t lane) {
  return accesses.lanes[byte] != lane ? accesses.lanes[byte] : accesses.others[byte];
}

bool LaneRaces::access(uint32_t rank, uint32_t warp, uint32_t lane, uint32_t op, uint32_t offset,
                       uint32_t bytes, bool writes, Conflict& conflict) {
  const uint32_t epoch = epoch_of(warp);
  bool found = false;
  for (uint32_t at = offset; at < offset + bytes; ++at) {
    Word& place = word(rank, at);
    const std::size_t byte = at % kWordBytes;
    const Accesses& other = writes ? place.read : place.write;
    if (!found && other.epoch == epoch && other.warp == warp) {
      const uint8_t who = another(other, byte, lane);
      found = who != kNobody;
      if (found) conflict = {other.op, who, !writes};
    }
    Accesses& own = writes ? place.write : place.read;
    if (own.epoch != epoch || own.warp != warp) {
      own.epoch = epoch;
      own.warp = static_cast<uint16_t>(warp);
      own.lanes.fill(kNobody);
      own.others.fill(kNobody);
    }
    own.op = op;
    if (writes || own.lanes[byte] == kNobody) {
      own.lanes[byte] = static_cast<uint8_t>(lane);
    } else if (own.lanes[byte] != lane) {
      own.others[byte] = static_cast<uint8_t>(lane);
    }
  }
  return found;
}

void LaneRaces::synchronise(uint32_t warp) { ++epoch_of(warp); }

}  // namespace warploom::emulator
