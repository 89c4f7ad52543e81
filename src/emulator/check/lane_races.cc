#include "emulator/check/lane_races.h"

#include <algorithm>

namespace warploom::emulator {

bool LaneRaces::Lanes::knows(uint32_t reader, uint32_t writer, uint32_t when) const {
  return all >= when || (known != nullptr && (*known)[reader][writer] >= when);
}

LaneRaces::Lanes& LaneRaces::lanes_of(uint32_t warp) {
  if (warp >= lanes_.size()) lanes_.resize(warp + 1);
  return lanes_[warp];
}

void LaneRaces::synchronise(uint32_t warp) {
  Lanes& own = lanes_of(warp);
  own.all = own.epoch++;
  own.known = nullptr;
}

void LaneRaces::synchronise(uint32_t warp, uint32_t lanes) {
  Lanes& own = lanes_of(warp);
  if (own.known == nullptr) own.known = std::make_unique<Known>();
  Known& known = *own.known;
  std::array<uint32_t, kWarpLanes> together{};
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    for (uint32_t writer = 0; writer < kWarpLanes; ++writer) {
      together[writer] = std::max(together[writer], known[lane][writer]);
    }
    together[lane] = own.epoch;
  }
  for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
    if (lanes >> lane & 1) known[lane] = together;
  }
  ++own.epoch;
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
  const uint32_t epoch = lanes_of(warp).epoch;
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
  const Lanes& own = lanes_of(warp);
  for (uint32_t at = offset; at < offset + bytes; ++at) {
    const Word& place = word(rank, at);
    if (place.epoch <= own.all || place.warp != warp) continue;
    const uint8_t writer = place.lanes[at % kWordBytes];
    if (writer == lane || writer == kNobody || writer == kSeveral) continue;
    if (own.knows(lane, writer, place.epoch)) continue;
    conflict = {place.op, writer};
    return true;
  }
  return false;
}

}  // namespace warploom::emulator
