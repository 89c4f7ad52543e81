#include "emulator/exec/isa/movement/tensor_map_ops.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "emulator/async/tensor_map.h"
#include "emulator/async/tensor_map_replace.h"
#include "emulator/check/checker.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/movement/families.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

using ptx::Space;

// What PTX asks of the address of a map.
constexpr uint32_t kReplaceAlignment = 64;
constexpr uint32_t kCopyAlignment = 128;

struct ReplaceForm {
  TensorMapField field = TensorMapField::kAddress;
  uint32_t dimension = 0;
  Space space = Space::kGeneric;
};

struct CopyForm {
  Address to;    // in global memory
  Address from;  // in shared memory
};

Step replace(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const ReplaceForm*>(op.form);
  for_each_lane(active, [&](int lane) {
    const uint64_t address = warp.address(op, lane);
    uint8_t* place =
        resolve(warp, form.space, lane, address, kTensorMapBytes, kReplaceAlignment);
    TensorMapFields fields = tensor_map_fields(place);
    replace_field(fields, form.field, form.dimension, warp.value(op.s[0], lane));
    if (Checker* checker = checker_of(warp.cluster())) {
      checker->generic_lane(warp, op, lane, form.space, address, kTensorMapBytes,
                            Touch::kReadWrite);
    }
    store_tensor_map(fields, place);
  });
  return Step::kNext;
}

// The warp copies one map together, and releases it.
Step copy_and_fence(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const CopyForm*>(op.form);
  const int lane = __builtin_ctz(active);
  const uint64_t to = warp.address(form.to, lane), from = warp.address(form.from, lane);
  for_each_lane(active, [&](int other) {
    if (warp.address(form.to, other) != to || warp.address(form.from, other) != from) {
      fault("lane %d copies another tensor map than lane %d: a warp copies one", other, lane);
    }
  });
  const uint8_t* source =
      resolve(warp, Space::kShared, lane, from, kTensorMapBytes, kCopyAlignment);
  uint8_t* target = resolve(warp, Space::kGlobal, lane, to, kTensorMapBytes, kCopyAlignment);
  if (Checker* checker = checker_of(warp.cluster())) {
    checker->generic_lane(warp, op, lane, Space::kShared, from, kTensorMapBytes, Touch::kRead);
    checker->generic_lane(warp, op, lane, Space::kGlobal, to, kTensorMapBytes, Touch::kWrite);
    checker->release_tensor_maps(warp);
  }
  std::memcpy(target, source, kTensorMapBytes);
  return Step::kNext;
}

Step release(Warp& warp, const Op&, uint32_t) {
  if (Checker* checker = checker_of(warp.cluster())) checker->release_tensor_maps(warp);
  return Step::kNext;
}

Step acquire(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    const uint64_t address = warp.address(op, lane);
    resolve(warp, Space::kGeneric, lane, address, kTensorMapBytes, kReplaceAlignment);
    if (Checker* checker = checker_of(warp.cluster())) {
      checker->acquire_tensor_map(warp, op, lane, address);
    }
  });
  return Step::kNext;
}

struct FieldName {
  const char* name;
  TensorMapField field;
  bool has_dimension;
};
constexpr FieldName kFields[] = {
    {"global_address", TensorMapField::kAddress, false},
    {"rank", TensorMapField::kRank, false},
    {"box_dim", TensorMapField::kBox, true},
    {"global_dim", TensorMapField::kExtent, true},
    {"global_stride", TensorMapField::kStride, true},
    {"element_stride", TensorMapField::kStep, true},
    {"elemtype", TensorMapField::kType, false},
    {"interleave_layout", TensorMapField::kInterleave, false},
    {"swizzle_mode", TensorMapField::kSwizzle, false},
    {"swizzle_atomicity", TensorMapField::kAtomicity, false},
    {"fill_mode", TensorMapField::kFill, false},
};

void decode_replace(Decoder& decoder) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take_all({"replace", "b1024"});
  if (!modifiers.take("tile")) decoder.fail("only the mode .tile exists");
  const FieldName* found = nullptr;
  for (const FieldName& each : kFields) {
    if (modifiers.take(each.name)) found = &each;
  }
  if (found == nullptr) decoder.fail("it names no field of a tensor map");
  ReplaceForm form;
  form.field = found->field;
  form.space = take_space(decoder);
  const Type type = modifiers.take_type();
  const bool wide = form.field == TensorMapField::kAddress || form.field == TensorMapField::kStride;
  if (type != (wide ? Type::kB64 : Type::kB32)) {
    decoder.fail(std::string("the value of this field is of type ") + (wide ? ".b64" : ".b32"));
  }
  std::size_t next = 1;
  if (found->has_dimension) {
    const int64_t dimension = decoder.integer(decoder.operand(next++));
    const int64_t count = form.field == TensorMapField::kStride ? kTensorMapRank - 1
                                                                : kTensorMapRank;
    if (dimension < 0 || dimension >= count) {
      decoder.fail("the ordinal of this field is 0 to " + std::to_string(count - 1));
    }
    form.dimension = static_cast<uint32_t>(dimension);
  }
  decoder.expect_count(next + 1, next + 1);
  decoder.op.address = decoder.address(decoder.operand(0));
  decoder.op.s[0] = decoder.source(decoder.operand(next), type);
  decoder.form(form);
  decoder.op.run = replace;
}

void expect_map_size(Decoder& decoder, std::size_t operand) {
  decoder.expect_count(operand + 1, operand + 1);
  if (decoder.integer(decoder.operand(operand)) != kTensorMapBytes) {
    decoder.fail("the size must be 128");
  }
}

void decode_copy(Decoder& decoder) {
  decoder.modifiers.take_all({"cp_fenceproxy", "global", "shared::cta", "tensormap::generic",
                              "release", "cta", "cluster", "gpu", "sys", "sync", "aligned"});
  expect_map_size(decoder, 2);
  CopyForm form;
  form.to = decoder.address(decoder.operand(0));
  form.from = decoder.address(decoder.operand(1));
  decoder.form(form);
  decoder.op.flow = Flow::kSync;
  decoder.op.run = copy_and_fence;
}

}  // namespace

void decode_tensor_map_fence(Decoder& decoder, bool acquires) {
  if (!acquires) {
    decoder.expect_count(0, 0);
    decoder.op.run = release;
    return;
  }
  expect_map_size(decoder, 1);
  decoder.op.address = decoder.address(decoder.operand(0));
  decoder.op.run = acquire;
}

void add_tensor_map_ops(DecodeTable& table) {
  table["tensormap.replace"] = decode_replace;
  table["tensormap.cp_fenceproxy"] = decode_copy;
}

}  // namespace warploom::emulator
