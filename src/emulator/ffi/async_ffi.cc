// mbarrier states, tensor maps and copies of boxes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tvm/ffi/container/array.h>
#include <vector>

#include "emulator/async/mbarrier.h"
#include "emulator/async/tensor_copy.h"
#include "emulator/async/tensor_map.h"
#include "emulator/async/tensor_map_encode.h"
#include "emulator/ffi/marshal.h"

namespace warploom::emulator {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::String;

// One transition; states are 64 bits in an int64.
int64_t mbarrier_step(const String& operation, int64_t state, int64_t argument) {
  using Transition = uint64_t (*)(uint64_t, uint32_t);
  struct Entry {
    const char* name;
    Transition function;
  };
  constexpr Entry kEntries[] = {
      {"init", [](uint64_t, uint32_t count) { return mbarrier_init(count); }},
      {"inval", [](uint64_t old, uint32_t) { return mbarrier_inval(old); }},
      {"arrive", mbarrier_arrive},
      {"arrive_no_complete", mbarrier_arrive_no_complete},
      {"arrive_drop", mbarrier_arrive_drop},
      {"expect_tx", mbarrier_expect_tx},
      {"complete_tx", mbarrier_complete_tx},
  };
  return guarded([&]() -> int64_t {
    for (const Entry& entry : kEntries) {
      if (operation == entry.name) {
        return static_cast<int64_t>(
            entry.function(static_cast<uint64_t>(state), static_cast<uint32_t>(argument)));
      }
    }
    fault("there is no mbarrier operation %s", operation.c_str());
  });
}

bool mbarrier_done(int64_t state, bool parity) {
  return guarded([&] { return mbarrier_phase_done(static_cast<uint64_t>(state), parity); });
}

bool mbarrier_done_since(int64_t state, int64_t token) {
  return guarded([&] {
    return mbarrier_phase_done_token(static_cast<uint64_t>(state), static_cast<uint64_t>(token));
  });
}

String mbarrier_text(int64_t state) { return mbarrier_describe(static_cast<uint64_t>(state)); }

// CUresult, the reason if it is not 0, and the 128 bytes of the map.
Array<Any> make_tensor_map(int data_type, int64_t address, const Bytes& dims, const Bytes& strides,
                           const Bytes& box, const Bytes& element_strides, int interleave,
                           int swizzle, int l2_promotion, int oob_fill) {
  const std::vector<uint64_t> dim = unpack_bytes<uint64_t>(dims);
  const std::vector<uint64_t> stride = unpack_bytes<uint64_t>(strides);
  const std::vector<uint32_t> extent = unpack_bytes<uint32_t>(box);
  const std::vector<uint32_t> step = unpack_bytes<uint32_t>(element_strides);
  std::vector<uint8_t> map(kTensorMapBytes);
  const TensorMapArguments arguments{map.data(),
                                     data_type,
                                     static_cast<uint32_t>(dim.size()),
                                     static_cast<uint64_t>(address),
                                     dim.data(),
                                     stride.data(),
                                     step.data(),
                                     interleave,
                                     swizzle,
                                     l2_promotion,
                                     oob_fill};
  const std::string why = encode_tiled(arguments, extent.data());
  return {why.empty() ? 0 : 1, String(why), pack_bytes(map)};
}

Reduction reduction_of(const String& name) {
  constexpr const char* kNames[] = {"", "add", "min", "max", "inc", "dec", "and", "or", "xor"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Reduction>(i);
  }
  fault("there is no reduction .%s", name.c_str());
}

// Between a host array of `size` bytes at `address` and shared memory, which is returned.
Bytes copy_box(const String& direction, const Bytes& map_bytes, const Bytes& coordinates,
               int64_t address, int64_t size, const Bytes& shared, int64_t offset,
               const String& reduction) {
  return guarded([&] {
    alignas(64) uint8_t storage[kTensorMapBytes] = {};
    std::memcpy(storage, map_bytes.data(), std::min(map_bytes.size(), sizeof(storage)));
    const TensorMap map = tensor_map_at(storage);
    const std::vector<int32_t> at = unpack_bytes<int32_t>(coordinates);
    if (at.size() != map.rank) fault("a box of rank %d needs as many coordinates", map.rank);
    TensorPlace place;
    std::copy(at.begin(), at.end(), place.at.begin());
    const bool load = direction == "load";
    check_tensor_copy(map, load ? TensorDirection::kLoad : TensorDirection::kStore,
                      reduction_of(reduction));
    check_tensor_place(map, place);
    GlobalMemory global;
    global.add(static_cast<uint64_t>(address), static_cast<uint64_t>(size));
    std::vector<uint8_t> memory = unpack_bytes<uint8_t>(shared);
    const SharedMemory view = shared_memory_of(memory);
    if (load) {
      tensor_load(map, place, global, view, static_cast<uint32_t>(offset));
    } else {
      tensor_store(map, place, global, view, static_cast<uint32_t>(offset),
                   reduction_of(reduction));
    }
    return pack_bytes(memory);
  });
}

int64_t box_bytes(const Bytes& map_bytes) {
  alignas(64) uint8_t storage[kTensorMapBytes] = {};
  std::memcpy(storage, map_bytes.data(), std::min(map_bytes.size(), sizeof(storage)));
  return guarded([&] { return static_cast<int64_t>(tensor_map_box_bytes(tensor_map_at(storage))); });
}

Bytes reduce_bytes(const String& type, const String& reduction, const Bytes& destination,
                   const Bytes& source) {
  return guarded([&] {
    check_reduction(type_of(type), reduction_of(reduction));
    std::vector<uint8_t> result = unpack_bytes<uint8_t>(destination);
    const std::vector<uint8_t> operand = unpack_bytes<uint8_t>(source);
    bulk_reduce(type_of(type), reduction_of(reduction), result.data(), operand.data(),
                static_cast<uint32_t>(std::min(result.size(), operand.size())));
    return pack_bytes(result);
  });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("warploom.emulator.mbarrier_step", mbarrier_step, "A transition of an mbarrier.")
      .def("warploom.emulator.mbarrier_done", mbarrier_done, "test_wait with a parity.")
      .def("warploom.emulator.mbarrier_done_since", mbarrier_done_since, "test_wait with a token.")
      .def("warploom.emulator.mbarrier_text", mbarrier_text, "An mbarrier in words.")
      .def("warploom.emulator.tensor_map", make_tensor_map, "cuTensorMapEncodeTiled.")
      .def("warploom.emulator.box_bytes", box_bytes, "Bytes of the box of a tensor map.")
      .def("warploom.emulator.copy_box", copy_box, "cp.async.bulk.tensor or its reduction.")
      .def("warploom.emulator.bulk_reduce", reduce_bytes, "The sum of cp.reduce.async.bulk.");
}

}  // namespace
}  // namespace warploom::emulator
