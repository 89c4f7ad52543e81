#include "graph/capturing.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/string.h>

namespace warploom::graph {

Any Pool::allocate(size_t place, const Function& stock, PackedArgs arguments) {
  // The machine, how many bytes, and where and how.
  const TVMFFIShapeCell* shape = TVMFFIShapeGetCellPtr(raw(arguments)[1].v_obj);
  Any storage;
  if (shape->size != 1) {
    stock.CallPacked(arguments, &storage);
    return storage;
  }
  const auto bytes = static_cast<uint64_t>(shape->data[0]);
  Words kind;
  for (int i = 2; i < arguments.size(); ++i) {
    if (auto text = arguments[i].as<tvm::ffi::String>()) {
      kind.insert(kind.end(), text->data(), text->data() + text->size());
    } else {
      append_argument(kind, raw(arguments)[i], true);
    }
  }
  if (place >= allocations_.size()) allocations_.resize(place + 1);
  Allocation& one = allocations_[place];
  if (one.bytes >= bytes && one.kind == kind) return one.storage;
  stock.CallPacked(arguments, &storage);
  one = {kind, bytes, storage};
  return storage;
}

void Capturing::call(const CacheKernel& kernel, PackedArgs arguments, Any* result) {
  const auto& expected = record_.kernels();
  if (kernels_ >= expected.size() || expected[kernels_] != kernel.number) {
    TVM_FFI_THROW(RuntimeError) << "a KV cache calls other kernels than a moment before";
  }
  ++kernels_;
  const auto count = static_cast<size_t>(arguments.size());
  std::vector<AnyView> changed(arguments.data(), arguments.data() + count);
  std::vector<DLTensor> copies(count);
  int64_t capacity = 0;
  for (size_t i = 0; i < count; ++i) {
    const DLTensor* tensor = tensor_of(raw(arguments)[i]);
    if (tensor == nullptr || !Record::is_index_array(*tensor)) continue;
    const Record::Place* place = record_.find(*tensor);
    if (place == nullptr) {
      TVM_FFI_THROW(RuntimeError) << "a KV cache passes another array than a moment before";
    }
    copies[i] = *tensor;
    copies[i].data = copies_;
    copies[i].byte_offset = place->offset;
    if (Record::grows(kernel, static_cast<int>(i), *tensor)) {
      capacity = capacity_of(tensor->shape[0]);
      copies[i].shape = &capacity;
    }
    changed[i] = &copies[i];
  }
  kernel.function.CallPacked(PackedArgs(changed.data(), arguments.size()), result);
}

void Capturing::allocate(const Function& stock, PackedArgs arguments, Any* result) {
  memory_.push_back(pool_.allocate(memory_.size(), stock, arguments));
  *result = memory_.back();
}

void Capturing::finish(int allocations) const {
  if (kernels_ != record_.kernels().size()) {
    TVM_FFI_THROW(RuntimeError) << "a KV cache calls fewer kernels than a moment before";
  }
  if (memory_.size() != static_cast<size_t>(allocations)) {
    TVM_FFI_THROW(RuntimeError) << "memory of the function is not allocated through warploom";
  }
}

}  // namespace warploom::graph
