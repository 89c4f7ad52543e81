// Arguments and results of functions of TVM's virtual machine.

#ifndef WARPLOOM_GRAPH_VALUE_H_
#define WARPLOOM_GRAPH_VALUE_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace warploom::graph {

using tvm::ffi::Any;
using tvm::ffi::AnyView;
using tvm::ffi::Function;
using tvm::ffi::PackedArgs;
using Words = std::vector<uint64_t>;

constexpr int kCuda = 2;  // of DLDeviceType

const TVMFFIAny* raw(PackedArgs arguments);

// The tensor that an argument is, or nullptr.
const DLTensor* tensor_of(const TVMFFIAny& argument);

const char* address_of(const DLTensor& tensor);

uint64_t bytes_of(const DLTensor& tensor);

// Dtype, device, shape and strides.
void append_form(Words& words, const DLTensor& tensor);

// All of an argument that decides what host code does with it: objects other than tensors, shapes
// and arrays by their identity; the address of a tensor that is in no array is left out if so
// wanted. False if it is nothing that can be compared.
bool append_argument(Words& words, const TVMFFIAny& argument, bool address);

// Visits the argument, or all that is in it if it is an array.
void visit(const TVMFFIAny& argument, const std::function<void(const TVMFFIAny&)>& visitor);

// The objects that arguments are, nullptr for others.
std::vector<const void*> identities(PackedArgs arguments);

// A value in which arguments of a call stand for themselves, so that it does not keep them alive.
class Value {
 public:
  Value() = default;
  Value(const Any& value, const std::vector<const void*>& arguments);

  // The value, with the arguments of another call.
  Any with(PackedArgs arguments) const;

 private:
  std::optional<int> argument_;
  std::optional<std::vector<Value>> array_;
  Any other_;
};

}  // namespace warploom::graph

#endif  // WARPLOOM_GRAPH_VALUE_H_
