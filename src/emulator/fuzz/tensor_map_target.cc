// Tensor maps: what the driver's functions accept, and what tensormap.replace can make of it, is
// copied between a small tensor and shared memory.

#include <algorithm>
#include <array>
#include <vector>

#include "emulator/async/tensor_copy.h"
#include "emulator/async/tensor_map.h"
#include "emulator/async/tensor_map_encode.h"
#include "emulator/async/tensor_map_replace.h"
#include "emulator/base/fault.h"
#include "emulator/fuzz/targets.h"

namespace warploom::emulator::fuzz {
namespace {

constexpr std::size_t kTensorBytes = 16 << 10;
constexpr std::size_t kSharedBytes = 64 << 10;

struct alignas(64) Block {
  uint8_t bytes[128];
};

// A value of 1 to 10, most of the time, and else anything.
uint64_t extent(Reader& input) {
  auto kind = input.take<uint8_t>();
  return kind < 0xe0 ? kind % 64 + 1u : input.take<uint64_t>();
}

// Each array has the element more that another rank would read.
struct Input {
  std::array<uint64_t, 6> dims{}, strides{};
  std::array<uint32_t, 6> box{}, steps{};
  std::array<int, 6> lower{}, upper{};
};

Input take_input(Reader& input) {
  Input result;
  for (std::size_t i = 0; i < result.dims.size(); ++i) {
    result.dims[i] = extent(input);
    result.strides[i] = extent(input) * 16;
    result.box[i] = static_cast<uint32_t>(extent(input));
    result.steps[i] = input.take<uint8_t>() % 16;
    result.lower[i] = input.take<int8_t>();
    result.upper[i] = input.take<int8_t>();
  }
  return result;
}

std::string encode(Reader& input, uint64_t address, void* map) {
  const auto function = input.take<uint8_t>();
  TensorMapArguments arguments{};
  arguments.out128 = map;
  arguments.data_type = input.take<uint8_t>() % 18;
  arguments.rank = input.take<uint8_t>() % 7;
  arguments.interleave = input.take<uint8_t>() % 4;
  arguments.swizzle = input.take<uint8_t>() % 8;
  arguments.oob_fill = input.take<uint8_t>() % 3;
  arguments.address = address;
  const Input values = take_input(input);
  arguments.dims = values.dims.data();
  arguments.strides = values.strides.data();
  arguments.element_strides = values.steps.data();
  if (function % 3 == 0) return encode_tiled(arguments, values.box.data());
  if (function % 3 == 1) {
    return encode_im2col(arguments, values.lower.data(), values.upper.data(), values.box[0],
                         values.box[1]);
  }
  return encode_im2col_wide(arguments, values.lower[0], values.upper[0], values.box[0],
                            values.box[1], values.box[2] % 3 == 0 ? 1 : 0);
}

void replace(Reader& input, void* map) {
  TensorMapFields fields = tensor_map_fields(map);
  for (unsigned left = input.take<uint8_t>() % 4; left > 0; --left) {
    auto field = static_cast<TensorMapField>(input.take<uint8_t>() % 11);
    const uint32_t count = field == TensorMapField::kStride ? kTensorMapRank - 1 : kTensorMapRank;
    const uint32_t dimension = input.take<uint8_t>() % count;
    replace_field(fields, field, dimension, extent(input));
  }
  store_tensor_map(fields, map);
}

void copy(Reader& input, const void* bytes, const GlobalMemory& global) {
  TensorMap map = tensor_map_at(bytes);
  if (input.take<uint8_t>() % 4 == 0) map = gather4(map);
  TensorPlace place;
  for (int32_t& at : place.at) at = input.take<int8_t>();
  for (uint16_t& offset : place.offsets) offset = input.take<uint8_t>();
  const bool load = input.take<uint8_t>() % 2 == 0;
  const auto reduction = static_cast<Reduction>(load ? 0 : input.take<uint8_t>() % 9);
  check_tensor_copy(map, load ? TensorDirection::kLoad : TensorDirection::kStore, reduction);
  check_tensor_place(map, place);
  std::vector<uint8_t> storage(kSharedBytes);
  SharedMemory shared;
  shared.data = storage.data();
  shared.bytes = static_cast<uint32_t>(storage.size());
  const uint32_t offset = SharedMemory::kReserved + 128u * input.take<uint16_t>();
  if (load) {
    tensor_load(map, place, global, shared, offset);
  } else {
    tensor_store(map, place, global, shared, offset, reduction);
  }
}

}  // namespace

void run_tensor_map(const uint8_t* data, std::size_t size) {
  Reader input(data, size);
  std::vector<Block> tensor(kTensorBytes / sizeof(Block));
  const auto address = reinterpret_cast<uint64_t>(tensor.data());
  GlobalMemory global;
  global.add(address, kTensorBytes);
  Block map{};
  try {
    if (!encode(input, address + 16 * (input.take<uint8_t>() % 4), map.bytes).empty()) return;
    replace(input, map.bytes);
    copy(input, map.bytes, global);
  } catch (const Fault&) {  // what a kernel would be told
  }
}

}  // namespace warploom::emulator::fuzz
