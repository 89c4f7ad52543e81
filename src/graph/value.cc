#include "graph/value.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/object.h>

#include <algorithm>

namespace warploom::graph {
namespace {

using tvm::ffi::Array;
using tvm::ffi::ArrayObj;

bool is_object(const TVMFFIAny& argument) {
  return argument.type_index >= kTVMFFIStaticObjectBegin;
}

}  // namespace

const TVMFFIAny* raw(PackedArgs arguments) {
  return reinterpret_cast<const TVMFFIAny*>(arguments.data());
}

const DLTensor* tensor_of(const TVMFFIAny& argument) {
  if (argument.type_index == kTVMFFIDLTensorPtr) return static_cast<DLTensor*>(argument.v_ptr);
  if (argument.type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(argument.v_obj);
  return nullptr;
}

const char* address_of(const DLTensor& tensor) {
  return static_cast<const char*>(tensor.data) + tensor.byte_offset;
}

uint64_t bytes_of(const DLTensor& tensor) {
  uint64_t bits = static_cast<uint64_t>(tensor.dtype.bits) * tensor.dtype.lanes;
  for (int i = 0; i < tensor.ndim; ++i) bits *= static_cast<uint64_t>(tensor.shape[i]);
  return (bits + 7) / 8;
}

void append_form(Words& words, const DLTensor& tensor) {
  const DLDataType& dtype = tensor.dtype;
  words.push_back(uint64_t{dtype.code} << 32 | uint64_t{dtype.bits} << 16 | dtype.lanes);
  words.push_back(static_cast<uint64_t>(tensor.device.device_type) << 32 |
                  static_cast<uint32_t>(tensor.device.device_id));
  words.push_back(static_cast<uint64_t>(tensor.ndim) << 1 | (tensor.strides != nullptr));
  for (int i = 0; i < tensor.ndim; ++i) {
    words.push_back(static_cast<uint64_t>(tensor.shape[i]));
    if (tensor.strides != nullptr) words.push_back(static_cast<uint64_t>(tensor.strides[i]));
  }
}

bool append_argument(Words& words, const TVMFFIAny& argument, bool address) {
  const int32_t type = argument.type_index;
  words.push_back(static_cast<uint64_t>(type));
  if (const DLTensor* tensor = tensor_of(argument)) {
    append_form(words, *tensor);
    if (address) words.push_back(reinterpret_cast<uint64_t>(address_of(*tensor)));
    return true;
  }
  if (type == kTVMFFIShape) {
    const TVMFFIShapeCell* shape = TVMFFIShapeGetCellPtr(argument.v_obj);
    words.push_back(shape->size);
    for (size_t i = 0; i < shape->size; ++i) words.push_back(static_cast<uint64_t>(shape->data[i]));
    return true;
  }
  if (type == kTVMFFIArray) {
    const ArrayObj& array = *AnyView::CopyFromTVMFFIAny(argument).as<ArrayObj>();
    words.push_back(array.size());
    return std::all_of(array.begin(), array.end(), [&](const Any& one) {
      return append_argument(words, AnyView(one).CopyToTVMFFIAny(), true);
    });
  }
  if (type == kTVMFFINone) return true;
  const bool is_plain = type == kTVMFFIInt || type == kTVMFFIBool || type == kTVMFFIFloat ||
                        type == kTVMFFIOpaquePtr || type == kTVMFFIDataType ||
                        type == kTVMFFIDevice;
  if (!is_plain && !is_object(argument)) return false;
  words.push_back(argument.v_uint64);
  return true;
}

void visit(const TVMFFIAny& argument, const std::function<void(const TVMFFIAny&)>& visitor) {
  if (argument.type_index != kTVMFFIArray) return visitor(argument);
  for (const Any& one : *AnyView::CopyFromTVMFFIAny(argument).as<ArrayObj>()) {
    visit(AnyView(one).CopyToTVMFFIAny(), visitor);
  }
}

std::vector<const void*> identities(PackedArgs arguments) {
  std::vector<const void*> objects;
  for (int i = 0; i < arguments.size(); ++i) {
    const TVMFFIAny& one = raw(arguments)[i];
    objects.push_back(is_object(one) ? one.v_obj : nullptr);
  }
  return objects;
}

Value::Value(const Any& value, const std::vector<const void*>& arguments) {
  const TVMFFIAny one = AnyView(value).CopyToTVMFFIAny();
  if (is_object(one)) {
    auto found = std::find(arguments.begin(), arguments.end(), one.v_obj);
    if (found != arguments.end()) {
      argument_ = static_cast<int>(found - arguments.begin());
      return;
    }
  }
  if (auto array = value.as<Array<Any>>()) {
    array_.emplace();
    for (const Any& each : *array) array_->emplace_back(each, arguments);
    return;
  }
  other_ = value;
}

Any Value::with(PackedArgs arguments) const {
  if (argument_.has_value()) return arguments[*argument_];
  if (!array_.has_value()) return other_;
  Array<Any> made;
  for (const Value& one : *array_) made.push_back(one.with(arguments));
  return made;
}

}  // namespace warploom::graph
