#include "emulator/check/lane_races.h"

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

void LaneRaces::write(uint32_t rank, uint32_t warp, uint32_t lane, uint32_t op, uint32_t offset,
                      uint32_t bytes) {
  const uint32_t epoch = epoch_of(warp);
  for (uint32_t at = offset; at < offset + bytes; ++at) {
    Word& place = word(rank, at);
    if (place.epoch != epoch || place.warp != warp) {
      place.epoch = epoch;
      place.warp = static_cast<uint16_t>(warp);
      place.lanes.fill(kNobody);
    }
    uint8_t& writer = place.lanes[at % kWordBytes];
    const bool several = place.op == op && writer != kNobody && writer != lane;
    writer = several ? kSeveral : static_cast<uint8_t>(lane);
    place.op = op;
  }
}

bool LaneRaces::read(uint32_t rank, uint32_t warp, uint32_t lane, uint32_t offset, uint32_t bytes,
                     Conflict& conflict) {
  const uint32_t epoch = epoch_of(warp);
  for (uint32_t at = offset; at < offset + bytes; ++at) {
    const Word& place = word(rank, at);
    if (place.epoch != epoch || place.warp != warp) continue;
    const uint8_t writer = place.lanes[at % kWordBytes];
    if (writer == lane || writer == kNobody || writer == kSeveral) continue;
    conflict = {place.op, writer};
    return true;
  }
  return false;
}

}  // namespace warploom::emulator
