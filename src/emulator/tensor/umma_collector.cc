#include "emulator/tensor/umma_collector.h"

#include "emulator/base/fault.h"

namespace warploom::emulator {

void UmmaCollectors::apply(const UmmaCollector& collector, const CollectedMatrix& matrix) {
  static constexpr const char* kNames[UmmaCollector::kBuffers] = {"a", "b0", "b1", "b2", "b3"};
  Buffer& buffer = buffers_[collector.buffer];
  const bool reuses =
      collector.use == CollectorUse::kUse || collector.use == CollectorUse::kLastUse;
  if (reuses && !(buffer.valid && buffer.matrix == matrix)) {
    const char* name = kNames[collector.buffer];
    fault("tcgen05.mma with .collector::%s::%s needs its matrix in the collector buffer, %s; fill "
          "it with .collector::%s::fill, and let no instruction in between discard it",
          name, collector.use == CollectorUse::kUse ? "use" : "lastuse",
          buffer.valid ? "which holds another one" : "which is empty", name);
  }
  buffer.valid = collector.use == CollectorUse::kFill || collector.use == CollectorUse::kUse;
  buffer.matrix = matrix;
}

}  // namespace warploom::emulator
