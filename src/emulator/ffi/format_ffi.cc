// cvt for whole arrays of operands.

#include "emulator/ffi/marshal.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/format/convert.h"

namespace warploom::emulator {
namespace {

using tvm::ffi::Bytes;
using tvm::ffi::String;

Rounding rounding_of(const String& name) {
  constexpr const char* kNames[] = {"",    "rn",  "rz",  "rm",  "rp", "rna",
                                    "rni", "rzi", "rmi", "rpi", "rs"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Rounding>(i);
  }
  fault("there is no rounding .%s", name.c_str());
}

CvtForm form_of(const String& to, const String& from, const String& rounding,
                const String& modifiers) {
  const CvtForm form{type_of(to),
                     type_of(from),
                     rounding_of(rounding),
                     has_word(modifiers, "ftz"),
                     has_word(modifiers, "sat"),
                     has_word(modifiers, "satfinite"),
                     has_word(modifiers, "relu")};
  check_cvt(form);
  return form;
}

// Operands and results have 64 bits each. Without `low`, each operand is converted; with it, pairs.
Bytes convert_all(const String& to, const String& from, const String& rounding,
                  const String& modifiers, const Bytes& operands, const Bytes& low) {
  return guarded([&] {
    const CvtForm form = form_of(to, from, rounding, modifiers);
    std::vector<uint64_t> values = unpack_bytes<uint64_t>(operands);
    const std::vector<uint64_t> others = unpack_bytes<uint64_t>(low);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = others.empty() ? cvt(form, values[i]) : cvt_pack2(form, values[i], others.at(i));
    }
    return pack_bytes(values);
  });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("warploom.emulator.cvt", convert_all,
                                        "cvt of PTX for arrays of 64-bit operands.");
}

}  // namespace
}  // namespace warploom::emulator
