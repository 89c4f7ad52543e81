// Races between the lanes of one warp in shared memory.
//
// To the vector clocks a warp is one thread. But its lanes are threads: that they converge, or meet
// at shfl.sync, vote.sync or match.sync, orders no memory accesses; bar.warp.sync does (PTX ISA,
// "bar.warp.sync"), and so does whatever orders threads of different warps. So between two such
// events of a warp no lane may read what another one writes, unless both accesses are one
// instruction of all lanes, which reads or writes only.

#ifndef WARPLOOM_EMULATOR_CHECK_LANE_RACES_H_
#define WARPLOOM_EMULATOR_CHECK_LANE_RACES_H_

#include <array>
#include <cstdint>
#include <vector>

namespace warploom::emulator {

class LaneRaces {
 public:
  // An access of another lane of the same warp that nothing orders before this one.
  struct Conflict {
    uint32_t op = 0;    // index in the program
    uint32_t lane = 0;
    bool writes = false;
  };

  // One lane of a warp, both numbered within the cluster, accesses shared memory of its own CTA.
  // Returns whether there is a conflict.
  bool access(uint32_t rank, uint32_t warp, uint32_t lane, uint32_t op, uint32_t offset,
              uint32_t bytes, bool writes, Conflict& conflict);

  // What the lanes of the warp did up to now comes before what they do from now on.
  void synchronise(uint32_t warp);

 private:
  static constexpr uint32_t kWordBytes = 4;
  static constexpr uint8_t kNobody = 0xff;

  // The last accesses of a word by one warp between two of its synchronisations.
  struct Accesses {
    uint32_t epoch = 0;
    uint32_t op = 0;
    uint16_t warp = 0;
    // Of each byte: the first lane, and the last one of the others. For writes, one lane.
    std::array<uint8_t, kWordBytes> lanes{};
    std::array<uint8_t, kWordBytes> others{};
  };
  struct Word {
    Accesses write;
    Accesses read;
  };

  // A lane other than this one among those of a byte; kNobody if there is none.
  static uint8_t another(const Accesses& accesses, std::size_t byte, uint32_t lane);
  uint32_t& epoch_of(uint32_t warp);
  Word& word(uint32_t rank, uint32_t offset);

  std::vector<std::vector<Word>> words_;  // of each CTA
  std::vector<uint32_t> epochs_;          // of each warp
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_LANE_RACES_H_
