// The collector buffers of the tensor core (PTX ISA, "tcgen05.mma", ".collector_usage"): whether
// an instruction may reuse a matrix that one before it has read.
//
// The hardware may read the matrix again whenever it likes, and the program must not change it in
// between, so that the emulator always reads it; what it checks is that the matrix was kept.

#ifndef WARPLOOM_EMULATOR_TENSOR_UMMA_COLLECTOR_H_
#define WARPLOOM_EMULATOR_TENSOR_UMMA_COLLECTOR_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace warploom::emulator {

enum class CollectorUse : uint8_t { kDiscard, kFill, kUse, kLastUse };

struct UmmaCollector {
  static constexpr std::size_t kBuffers = 5;  // a for A, b0 to b3 for B of .ws

  std::size_t buffer = 0;
  CollectorUse use = CollectorUse::kDiscard;
};

// Which matrix a buffer holds: its descriptor or address, and the fields of the instruction
// descriptor that say how it is read.
struct CollectedMatrix {
  uint64_t place;
  uint32_t fields;

  bool operator==(const CollectedMatrix& other) const {
    return place == other.place && fields == other.fields;
  }
};

// The buffers of one CTA.
class UmmaCollectors {
 public:
  // One instruction that is executed; a Fault if it reuses what was not kept.
  void apply(const UmmaCollector& collector, const CollectedMatrix& matrix);

 private:
  struct Buffer {
    bool valid = false;
    CollectedMatrix matrix{};
  };

  std::array<Buffer, UmmaCollector::kBuffers> buffers_{};
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_TENSOR_UMMA_COLLECTOR_H_
