// Races between the lanes of one warp in shared memory.
//
// To the vector clocks a warp is one thread. But its lanes are threads: that they converge, or meet
// at shfl.sync, vote.sync or match.sync, orders no memory accesses; bar.warp.sync orders those of
// its members (PTX ISA, "bar.warp.sync"), and whatever orders threads of different warps orders all
// lanes. So between two such events no lane may read what another one has written.
//
// Two cases are not reported. Where several lanes write a byte with one instruction they mostly
// write the same, and who reads it gets that. A write after a read of another lane is harmless if
// what was read has gone through a shuffle in between, which is how warps reduce.

#ifndef WARPLOOM_EMULATOR_CHECK_LANE_RACES_H_
#define WARPLOOM_EMULATOR_CHECK_LANE_RACES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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
  void synchronise(uint32_t warp);
  // The same for some lanes, and for what they know of others.
  void synchronise(uint32_t warp, uint32_t lanes);

 private:
  static constexpr uint32_t kWarpLanes = 32;
  static constexpr uint32_t kWordBytes = 4;
  static constexpr uint8_t kNobody = 0xff;
  static constexpr uint8_t kSeveral = 0xfe;

  // The last writes of a word by one warp in one of its epochs.
  struct Word {
    uint32_t epoch = 0;
    uint32_t op = 0;
    uint16_t warp = 0;
    std::array<uint8_t, kWordBytes> lanes{};  // of each byte
  };

  // [reader][writer]: the last epoch of the writer's accesses that come before the reader's.
  using Known = std::array<std::array<uint32_t, kWarpLanes>, kWarpLanes>;

  // What orders the lanes of a warp. An epoch ends with every synchronisation.
  struct Lanes {
    uint32_t epoch = 1;
    uint32_t all = 0;              // the last epoch that all lanes know of all
    std::unique_ptr<Known> known;  // absent: no more than that
    bool knows(uint32_t reader, uint32_t writer, uint32_t when) const;
  };

  Lanes& lanes_of(uint32_t warp);
  Word& word(uint32_t rank, uint32_t offset);

  std::vector<std::vector<Word>> words_;  // of each CTA
  std::vector<Lanes> lanes_;              // of each warp
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_CHECK_LANE_RACES_H_
