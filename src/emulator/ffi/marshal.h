// How the parts of the emulator are called one by one from Python: arrays travel as bytes.

#ifndef WARPLOOM_EMULATOR_FFI_MARSHAL_H_
#define WARPLOOM_EMULATOR_FFI_MARSHAL_H_

#include <cstddef>
#include <cstdint>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cstring>
#include <string>
#include <vector>

#include "emulator/base/fault.h"
#include "emulator/memory/memory.h"
#include "emulator/ptx/types.h"

namespace warploom::emulator {

constexpr int kWarpLanes = 32;

template <class T>
std::vector<T> unpack_bytes(const tvm::ffi::Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

template <class T>
tvm::ffi::Bytes pack_bytes(const std::vector<T>& values) {
  return tvm::ffi::Bytes(
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
}

inline Type type_of(const tvm::ffi::String& name) {
  const Type type = parse_type({name.data(), name.size()});
  if (type == Type::kNone) fault("there is no type %s", name.c_str());
  return type;
}

// Whether the words of `modifiers`, separated by blanks, contain `word`.
inline bool has_word(const tvm::ffi::String& modifiers, const std::string& word) {
  return (" " + std::string(modifiers.data(), modifiers.size()) + " ").find(" " + word + " ") !=
         std::string::npos;
}

// Registers of 32 lanes, as pointers to each.
template <class T>
std::vector<T*> registers_of(std::vector<T>& lanes) {
  std::vector<T*> registers;
  for (size_t i = 0; i < lanes.size(); i += kWarpLanes) registers.push_back(&lanes[i]);
  return registers;
}

inline SharedMemory shared_memory_of(std::vector<uint8_t>& bytes) {
  return {bytes.data(), static_cast<uint32_t>(bytes.size())};
}

// Calls the function; a Fault becomes a ValueError.
template <class Function>
auto guarded(Function function) {
  try {
    return function();
  } catch (const Fault& error) {
    TVM_FFI_THROW(ValueError) << error.what();
  }
  TVM_FFI_UNREACHABLE();
}

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_FFI_MARSHAL_H_
