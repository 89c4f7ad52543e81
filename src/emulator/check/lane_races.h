// Races between the lanes of one warp in shared memory.
//
// To the vector clocks a warp is one thread. But its lanes are threads: that they converge, or meet
// at shfl.sync, vote.sync or match.sync, orders no memory accesses; bar.warp.sync does (PTX ISA,
// "bar.warp.sync"), and so does whatever orders threads of different warps. So between two such
// events of a warp no lane may read what another one has written.
//
// Two cases are not reported. Where several lanes write a byte with one instruction they mostly
// write the same, and who reads it gets that. A write after a read of another lane is harmless if
// what was read has gone through a shuffle in between, which is how warps reduce.

#ifndef WARPLOOM_EMULATOR_CHECK_LANE_RACES_H_
#define WARPLOOM_EMULATOR_CHECK_LANE_RACES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace warploom::emulator {

class LaneRaces {
 public:
  // A write of another lane of the same warp that nothing orders before a read.
  struct Conflict {
    uint32_t op = 0;  // index in the program
    uint32_t lane = 0;
  };

  // One lane of a warp, both numbered within the cluster, writes or reads shared memory of its own
  // CTA. `read` returns whether there is a conflict.
  void write(uint32_t rank, uint32_t warp, uint32_t lane, uint32_t op, uint32_t offset,
             uint32_t bytes);
  bool read(uint32_t rank, uint32_t warp, uint32_t lane, uint32_t offset, uint32_t bytes,
            Conflict& conflict);

  // What the lanes of the warp did up to now comes before what they do from now on.
  void synchronise(uint32_t warp) { ++epoch_of(warp); }

 private:
  static constexpr uint32_t kWordBytes = 4;
  static constexpr uint8_t kNobody = 0xff;
  static constexpr uint8_t kSeveral = 0xfe;

  // The last writes of a word by one warp between two of its synchronisations.
  struct Word {
    uint32_t epoch = 0;
    uint32_t op = 0;
    uint16_t warp = 0;
    std::array<uint8_t, kWordBytes> lanes{};  // of each byte
  };

  uint32_t& epoch_of(uint32_t warp);
  Word& word(uint32_t rank, uint32_t offset);

  std::vector<std::vector<Word>> words_;  // of each CTA
  std::vector<uint32_t> epochs_;          // of each warp
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_LANE_RACES_H_
