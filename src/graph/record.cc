#include "graph/record.h"

#include <tvm/ffi/container/tensor.h>

#include <algorithm>

namespace warploom::graph {
namespace {

constexpr uint64_t kAlignment = 16;  // of index arrays, by TVM
constexpr int64_t kLeast = 64;       // indices
constexpr uint64_t kIndexArray = uint64_t{1} << 63;  // in a key; no argument's type

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

int64_t capacity_of(int64_t indices) {
  int64_t step = kLeast;
  while (step * 8 <= indices) step *= 2;  // so that step is at most a quarter of them, or the least
  return std::max<int64_t>(1, (indices + step - 1) / step) * step;
}

bool Record::is_index_array(const DLTensor& tensor) {
  return tensor.device.device_type == kCuda && tensor.dtype.code == kDLInt &&
         tensor.dtype.bits == 32 && tensor.dtype.lanes == 1 && tensor.ndim >= 1 &&
         tvm::ffi::IsContiguous(tensor);
}

bool Record::grows(const CacheKernel& kernel, int argument, const DLTensor& tensor) {
  return argument == kernel.pages_at && tensor.ndim == 1;
}

uint64_t Record::add_array(const DLTensor& array, bool is_growing) {
  const uint64_t number = arrays_.size();
  auto [entry, is_new] =
      arrays_.try_emplace({static_cast<const char*>(array.data), array.byte_offset});
  Array& one = entry->second;
  if (is_new) one.number = number;
  const uint64_t bytes = bytes_of(array);
  const uint64_t capacity =
      is_growing ? sizeof(int32_t) * static_cast<uint64_t>(capacity_of(array.shape[0])) : bytes;
  one.bytes = std::max(one.bytes, bytes);
  one.capacity = std::max(one.capacity, capacity);
  one.place.grows |= is_growing;
  return one.number;
}

void Record::call(const CacheKernel& kernel, PackedArgs arguments, Any*) {
  kernels_.push_back(kernel.number);
  words_.push_back(static_cast<uint64_t>(kernel.number) << 8 |
                   static_cast<uint64_t>(arguments.size()));
  for (int i = 0; i < arguments.size(); ++i) {
    const DLTensor* tensor = tensor_of(raw(arguments)[i]);
    if (tensor == nullptr || !is_index_array(*tensor)) {
      is_complete_ &= append_argument(words_, raw(arguments)[i], true);
      continue;
    }
    const bool is_growing = grows(kernel, i, *tensor);
    words_.push_back(kIndexArray | static_cast<uint64_t>(is_growing));
    words_.push_back(add_array(*tensor, is_growing));
    if (is_growing) {
      words_.push_back(static_cast<uint64_t>(capacity_of(tensor->shape[0])));
    } else {
      append_form(words_, *tensor);
    }
  }
}

void Record::allocate(const Function& stock, PackedArgs arguments, Any* result) {
  stock.CallPacked(arguments, result);
}

void Record::add_result(const Any& result) {
  const TVMFFIAny one = AnyView(result).CopyToTVMFFIAny();
  if (tensor_of(one) != nullptr) append_argument(words_, one, true);
}

void Record::finish() {
  std::vector<uint64_t> places(2 * arrays_.size());
  const char* base = nullptr;
  uint64_t start = 0, end = 0, capacity = 0;  // of the chunk, in the cache's buffer
  bool is_open = false, may_follow = false;
  auto close = [&] {
    if (!is_open) return;
    chunks_.back().bytes = end - start;
    bytes_ = aligned(chunks_.back().to + std::max(capacity, end - start));
  };
  for (auto& [where, one] : arrays_) {
    const auto& [buffer, offset] = where;
    if (!is_open || buffer != base || !may_follow) {
      close();
      base = buffer;
      start = end = offset;
      capacity = 0;
      is_open = true;
      chunks_.push_back({base + start, bytes_ + start % kAlignment, 0});
    }
    one.place.offset = chunks_.back().to + offset - start;
    end = std::max(end, offset + one.bytes);
    capacity = std::max(capacity, offset - start + one.capacity);
    may_follow = !one.place.grows;
    places[2 * one.number] = one.place.offset;
    places[2 * one.number + 1] = one.capacity;
  }
  close();
  words_.insert(words_.end(), places.begin(), places.end());
}

const Record::Place* Record::find(const DLTensor& array) const {
  auto entry = arrays_.find({static_cast<const char*>(array.data), array.byte_offset});
  return entry == arrays_.end() ? nullptr : &entry->second.place;
}

}  // namespace warploom::graph
