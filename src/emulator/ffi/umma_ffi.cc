// tcgen05.mma on shared and tensor memory that are given as bytes.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tvm/ffi/container/array.h>
#include <vector>

#include "emulator/ffi/marshal.h"
#include "emulator/matrix/row_product.h"
#include "emulator/tensor/umma.h"

namespace warploom::emulator {
namespace {

using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::String;

UmmaKind kind_of(const String& name) {
  for (int i = 0; i <= static_cast<int>(UmmaKind::kMxf4nvf4); ++i) {
    const auto kind = static_cast<UmmaKind>(i);
    if (name == umma_kind_facts(kind).name) return kind;
  }
  fault("there is no kind %s", name.c_str());
}

UmmaForm form_of(const String& kind, int cta_group, int scale_vectors, int scale_input,
                 const String& modifiers) {
  const UmmaForm form{kind_of(kind),
                      cta_group,
                      has_word(modifiers, "sp"),
                      has_word(modifiers, "ws"),
                      has_word(modifiers, "a_in_tensor_memory"),
                      has_word(modifiers, "ashift"),
                      scale_vectors,
                      scale_input};
  check_umma(form);
  return form;
}

// M, N and K of an instruction descriptor.
Array<int64_t> shape_of(const String& kind, int cta_group, int scale_vectors,
                        const String& modifiers, int64_t bits) {
  return guarded([&] {
    const UmmaInstruction instruction = parse_umma_instruction(
        form_of(kind, cta_group, scale_vectors, 0, modifiers), static_cast<uint32_t>(bits));
    return Array<int64_t>{instruction.m, instruction.n, instruction.k};
  });
}

// A, B, D, instruction descriptor, zero-column mask, scale factors of A and of B, the eight words
// of disabled lanes, and the metadata of A, each as 64 bits.
UmmaOperands operands_of(const Bytes& bytes, bool accumulate) {
  const std::vector<uint64_t> values = unpack_bytes<uint64_t>(bytes);
  if (values.size() != 16) fault("tcgen05.mma needs 16 operands, it has %zu", values.size());
  const auto word = [&values](std::size_t i) { return static_cast<uint32_t>(values[i]); };
  UmmaOperands operands{values[0], values[1], word(2), word(3), accumulate,
                        {},        values[4], word(5), word(6),  word(15)};
  for (std::size_t i = 0; i < 8; ++i) operands.disabled_lanes[i] = word(7 + i);
  return operands;
}

// The lanes of a tensor memory, each with its columns, all of which are allocated.
constexpr uint32_t kLanes = kTensorLanes, kColumns = kTensorColumns;

void copy_lanes(const Bytes& bytes, TensorMemory& tensor) {
  const std::vector<uint32_t> cells = unpack_bytes<uint32_t>(bytes);
  if (cells.size() != kLanes * kColumns) fault("a tensor memory has 128 lanes of 512 columns");
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    std::memcpy(tensor.at(lane, 0, kColumns), &cells[lane * kColumns], kColumns * 4);
  }
}

Bytes bytes_of(TensorMemory& tensor) {
  std::vector<uint32_t> cells(kLanes * kColumns);
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    std::memcpy(&cells[lane * kColumns], tensor.at(lane, 0, kColumns), kColumns * 4);
  }
  return pack_bytes(cells);
}

// One shared and one tensor memory for each CTA; returns the tensor memories.
Array<Bytes> run_umma(const String& kind, int cta_group, int scale_vectors, int scale_input,
                      const String& modifiers, const Bytes& operands, const Array<Bytes>& shared,
                      const Array<Bytes>& tensors, int repeat) {
  return guarded([&] {
    const UmmaForm form = form_of(kind, cta_group, scale_vectors, scale_input, modifiers);
    const auto count = static_cast<std::size_t>(cta_group);
    if (shared.size() != count || tensors.size() != count) fault("a CTA lacks a memory");
    std::vector<std::vector<uint8_t>> bytes(count);
    std::vector<SharedMemory> shared_memories(count);
    std::vector<TensorMemory> tensor_memories(count);
    for (TensorMemory& tensor : tensor_memories) {
      tensor.allocator().allocate({kTensorColumns, 1, 0, 0});
    }
    std::vector<UmmaCta> ctas;
    for (std::size_t i = 0; i < count; ++i) {
      bytes[i] = unpack_bytes<uint8_t>(shared[static_cast<int64_t>(i)]);
      shared_memories[i] = shared_memory_of(bytes[i]);
      copy_lanes(tensors[static_cast<int64_t>(i)], tensor_memories[i]);
      ctas.push_back({&shared_memories[i], &tensor_memories[i]});
    }
    const UmmaPlan plan =
        plan_umma(form, operands_of(operands, has_word(modifiers, "accumulate")));
    for (int i = 0; i < repeat; ++i) umma(plan, ctas.data());
    Array<Bytes> results;
    for (TensorMemory& tensor : tensor_memories) results.push_back(bytes_of(tensor));
    return results;
  });
}

Array<String> kernel_names() {
  return guarded([] {
    Array<String> names;
    for (const RowKernel& kernel : row_kernels()) names.push_back(kernel.name);
    return names;
  });
}

const RowKernel& kernel_of(const String& name) {
  for (const RowKernel& kernel : row_kernels()) {
    if (name == kernel.name) return kernel;
  }
  fault("this processor has no kernel %s", name.c_str());
}

// A [rows][k], B [k][columns], D [rows][columns] of float; returns D.
Bytes run_row_product(const String& kernel, int rows, int columns, int k, const Bytes& a_bytes,
                      const Bytes& b_bytes, const Bytes& d_bytes) {
  return guarded([&] {
    const std::vector<float> a = unpack_bytes<float>(a_bytes);
    const std::vector<float> b = unpack_bytes<float>(b_bytes);
    std::vector<uint32_t> d = unpack_bytes<uint32_t>(d_bytes);
    std::vector<const float*> a_rows;
    std::vector<uint32_t*> d_rows;
    for (int row = 0; row < rows; ++row) {
      a_rows.push_back(&a[static_cast<std::size_t>(row * k)]);
      d_rows.push_back(&d[static_cast<std::size_t>(row * columns)]);
    }
    kernel_of(kernel).multiply(
        {rows, columns, k, a_rows.data(), b.data(), columns, d_rows.data()});
    return pack_bytes(d);
  });
}

// One row: D and the sums of float, the factors of columns of double; returns D.
Bytes run_add_scaled(const String& kernel, double row_scale, const Bytes& sum_bytes,
                     const Bytes& scale_bytes, const Bytes& d_bytes) {
  return guarded([&] {
    const std::vector<uint32_t> sum = unpack_bytes<uint32_t>(sum_bytes);
    const std::vector<double> scale = unpack_bytes<double>(scale_bytes);
    std::vector<uint32_t> d = unpack_bytes<uint32_t>(d_bytes);
    kernel_of(kernel).add_scaled(
        {static_cast<int>(d.size()), sum.data(), row_scale, scale.data(), d.data()});
    return pack_bytes(d);
  });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("warploom.emulator.umma", run_umma, "tcgen05.mma of PTX, executed at once.")
      .def("warploom.emulator.umma_shape", shape_of, "What an instruction descriptor says.")
      .def("warploom.emulator.row_kernels", kernel_names, "Instruction sets for rows.")
      .def("warploom.emulator.row_product", run_row_product, "The loops of tcgen05.mma.")
      .def("warploom.emulator.add_scaled", run_add_scaled, "Block scaling of a row.");
}

}  // namespace
}  // namespace warploom::emulator
