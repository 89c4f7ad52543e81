// Matrix instructions on registers and shared memory that are given as bytes.

#include <cstddef>
#include <cstdint>
#include <tvm/ffi/container/array.h>
#include <vector>

#include "emulator/ffi/marshal.h"
#include "emulator/matrix/ldmatrix.h"
#include "emulator/matrix/mma.h"
#include "emulator/matrix/product.h"
#include "emulator/matrix/wgmma.h"

namespace warploom::emulator {
namespace {

using tvm::ffi::Bytes;
using tvm::ffi::String;

// Types are "d a b". The accumulator is [register][4 warps][32 lanes], as is A where it is given.
Bytes run_wgmma(int n, int k, const String& d, const String& a, const String& b,
                const String& modifiers, const Bytes& accumulator, const Bytes& register_a,
                int64_t a_descriptor, int64_t b_descriptor, const Bytes& shared, int repeat,
                const Bytes& metadata, int selector) {
  return guarded([&] {
    const WgmmaForm form{n,
                         k,
                         type_of(d),
                         type_of(a),
                         type_of(b),
                         register_a.size() != 0,
                         has_word(modifiers, "trans_a"),
                         has_word(modifiers, "trans_b"),
                         has_word(modifiers, "negate_a"),
                         has_word(modifiers, "negate_b"),
                         has_word(modifiers, "satfinite"),
                         metadata.size() != 0,
                         selector};
    check_wgmma(form);
    std::vector<uint32_t> d_lanes = unpack_bytes<uint32_t>(accumulator);
    std::vector<uint32_t> a_lanes = unpack_bytes<uint32_t>(register_a);
    std::vector<uint8_t> memory = unpack_bytes<uint8_t>(shared);
    const std::vector<uint32_t*> d_registers = registers_of(d_lanes);
    const std::vector<uint32_t*> a_registers = registers_of(a_lanes);
    // One register of each warp; without metadata, nobody looks at them.
    std::vector<uint32_t> lanes = unpack_bytes<uint32_t>(metadata);
    std::vector<uint32_t*> rows = registers_of(lanes);
    rows.resize(4);
    const WgmmaOperands operands{d_registers.data(), a_registers.data(),
                                 static_cast<uint64_t>(a_descriptor),
                                 static_cast<uint64_t>(b_descriptor),
                                 has_word(modifiers, "accumulate"),
                                 {rows[0], rows[1], rows[2], rows[3]}};
    for (int i = 0; i < repeat; ++i) wgmma(form, operands, shared_memory_of(memory));
    return pack_bytes(d_lanes);
  });
}

// Registers are [register][32 lanes], of 64 bits for f64. Without metadata, A is dense.
Bytes run_mma(int m, int n, int k, const String& d, const String& a, const String& b,
              const String& c, const String& modifiers, const Bytes& a_bytes, const Bytes& b_bytes,
              const Bytes& c_bytes, const Bytes& metadata_bytes, int selector) {
  return guarded([&] {
    const BitOperation bits = has_word(modifiers, "xor")   ? BitOperation::kXor
                              : has_word(modifiers, "and") ? BitOperation::kAnd
                                                           : BitOperation::kNone;
    const MmaForm form{m,
                       n,
                       k,
                       type_of(d),
                       type_of(a),
                       type_of(b),
                       type_of(c),
                       has_word(modifiers, "satfinite"),
                       bits,
                       metadata_bytes.size() != 0,
                       has_word(modifiers, "ordered"),
                       selector,
                       has_word(modifiers, "a_col"),
                       has_word(modifiers, "b_row")};
    check_mma(form);
    const auto run = [&](auto zero, auto product) {
      using T = decltype(zero);
      std::vector<T> a_lanes = unpack_bytes<T>(a_bytes), b_lanes = unpack_bytes<T>(b_bytes);
      std::vector<T> c_lanes = unpack_bytes<T>(c_bytes);
      const std::vector<T*> a_registers = registers_of(a_lanes),
                            b_registers = registers_of(b_lanes);
      const std::vector<T*> c_registers = registers_of(c_lanes);
      product(c_registers.data(), a_registers.data(), b_registers.data(), c_registers.data());
      return pack_bytes(c_lanes);
    };
    if (form.a == Type::kF64) {
      return run(uint64_t{}, [&](auto... operands) { mma_sync_double(form, operands...); });
    }
    const std::vector<uint32_t> metadata = unpack_bytes<uint32_t>(metadata_bytes);
    return run(uint32_t{}, [&](auto... operands) { mma_sync(form, operands..., metadata.data()); });
  });
}

Bytes run_ldmatrix(int count, bool trans, const Bytes& offsets, const Bytes& shared) {
  return guarded([&] {
    const std::vector<uint32_t> rows = unpack_bytes<uint32_t>(offsets);
    std::vector<uint8_t> memory = unpack_bytes<uint8_t>(shared);
    std::vector<uint32_t> lanes(static_cast<size_t>(count) * kWarpLanes);
    ldmatrix({count, trans}, rows.data(), registers_of(lanes).data(), shared_memory_of(memory));
    return pack_bytes(lanes);
  });
}

Bytes run_stmatrix(int count, bool trans, const Bytes& offsets, const Bytes& registers,
                   const Bytes& shared) {
  return guarded([&] {
    const std::vector<uint32_t> rows = unpack_bytes<uint32_t>(offsets);
    std::vector<uint8_t> memory = unpack_bytes<uint8_t>(shared);
    std::vector<uint32_t> lanes = unpack_bytes<uint32_t>(registers);
    stmatrix({count, trans}, rows.data(), registers_of(lanes).data(), shared_memory_of(memory));
    return pack_bytes(memory);
  });
}

tvm::ffi::Array<String> kernel_names() {
  return guarded([] {
    tvm::ffi::Array<String> names;
    for (const ProductKernel& kernel : product_kernels()) names.push_back(kernel.name);
    return names;
  });
}

// Operands and accumulator in the order of Product; returns the accumulator. `type` is that of the
// operands, and empty for sums in float.
Bytes run_product(const String& kernel_name, int warps, int n, int k, const String& type,
                  const Bytes& a_bytes, const Bytes& b_bytes, const Bytes& d_bytes) {
  return guarded([&] {
    SumRule rule;
    if (!type.empty()) rule = wgmma_sum_rule(type_of(type), type_of(type), Type::kF32);
    const std::vector<float> a = unpack_bytes<float>(a_bytes);
    std::vector<float> b = unpack_bytes<float>(b_bytes);
    b.resize(b.size() + 8);
    std::vector<uint32_t> d_lanes = unpack_bytes<uint32_t>(d_bytes);
    const std::vector<uint32_t*> d = registers_of(d_lanes);
    for (const ProductKernel& kernel : product_kernels()) {
      if (kernel_name != kernel.name) continue;
      kernel.run({warps, n, k, a.data(), b.data(), d.data(), rule});
      return pack_bytes(d_lanes);
    }
    fault("this processor has no kernel %s", kernel_name.c_str());
  });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("warploom.emulator.wgmma", run_wgmma, "wgmma.mma_async of PTX, executed at once.")
      .def("warploom.emulator.product_kernels", kernel_names, "Instruction sets for products.")
      .def("warploom.emulator.product", run_product, "The loops of all products.")
      .def("warploom.emulator.mma", run_mma, "mma.sync of PTX.")
      .def("warploom.emulator.ldmatrix", run_ldmatrix, "ldmatrix of PTX.")
      .def("warploom.emulator.stmatrix", run_stmatrix, "stmatrix of PTX.");
}

}  // namespace
}  // namespace warploom::emulator
