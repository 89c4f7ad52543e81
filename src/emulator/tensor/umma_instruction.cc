#include "emulator/tensor/umma_instruction.h"

#include <string>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

// The fields of one descriptor, with what a Fault says of them.
class Fields {
 public:
  Fields(const UmmaKindFacts& facts, uint32_t bits) : facts_(facts), bits_(bits) {}

  uint32_t at(int position, int count) const { return bits_ >> position & ((1u << count) - 1); }
  bool flag(int position) const { return at(position, 1) != 0; }

  void require_zero(int position, int count, const char* why) const {
    if (at(position, count) != 0) refuse(position, count, std::string("it must be 0: ") + why);
  }

  // An operand or accumulator by its code.
  template <class Types>
  Type type(int position, int count, const Types& types) const {
    const Type found = types[at(position, count)];
    if (found != Type::kNone) return found;
    std::string allowed;
    for (uint32_t code = 0; code < types.size(); ++code) {
      if (types[code] == Type::kNone) continue;
      allowed += (allowed.empty() ? "" : ", ") + std::to_string(code) + " (" +
                 std::string(type_name(types[code])) + ")";
    }
    refuse(position, count, "the types are " + allowed);
  }

  [[noreturn]] void refuse(int position, int count, const std::string& rule) const {
    const std::string place = count == 1 ? "bit " + std::to_string(position)
                                         : "bits " + std::to_string(position) + "-" +
                                               std::to_string(position + count - 1);
    fault("the instruction descriptor 0x%08x has %u in %s; for kind::%s %s", bits_,
          at(position, count), place.c_str(), facts_.name, rule.c_str());
  }

 private:
  const UmmaKindFacts& facts_;
  uint32_t bits_;
};

bool fills_bytes(Type type) {
  return type != Type::kE2m3 && type != Type::kE3m2 && type != Type::kE2m1;
}

void parse_dense(const Fields& fields, const UmmaKindFacts& facts, const UmmaForm& form,
                 UmmaInstruction* result) {
  result->saturate = fields.flag(3);
  if (result->saturate && form.kind != UmmaKind::kI8) {
    fields.refuse(3, 1, "only integers saturate");
  }
  result->d = fields.type(4, 2, facts.accumulators);
  fields.require_zero(23, 1, "it is reserved");
  fields.require_zero(29, 1, "it is reserved");
  const uint32_t shift = fields.at(30, 2);
  if (shift != 0 && !form.weight_stationary) {
    fields.refuse(30, 2, "a maximum shift belongs to .ws");
  }
  result->max_shift = shift == 0 ? 0 : 4 << shift;
  if (result->d != Type::kF16 || form.kind != UmmaKind::kF16) return;
  if (result->a != Type::kF16 || result->b != Type::kF16) {
    fields.refuse(4, 2, "an accumulator of f16 takes operands of f16");
  }
}

// Scale factors begin in byte `id` of a word: any for one of them, 0 or 2 for two, 0 for four.
int scale_id(const Fields& fields, int position, int vectors) {
  const auto id = static_cast<int>(fields.at(position, 2));
  if (id % vectors != 0) {
    fields.refuse(position, 2,
                  "the first of " + std::to_string(vectors) +
                      " scale factors lies in a byte whose number is a multiple of that");
  }
  return id;
}

void parse_scaled(const Fields& fields, const UmmaForm& form, UmmaInstruction* result) {
  for (int position : {0, 1, 3, 6}) fields.require_zero(position, 1, "it is reserved");
  fields.require_zero(24, 3, "it is reserved");
  if (form.kind == UmmaKind::kMxf8f6f4) {
    fields.require_zero(31, 1, "it is reserved");
  } else {
    fields.require_zero(31, 1, "sm_100 has no K of 96");
    fields.require_zero(12, 1, "it is reserved");
  }
  result->d = Type::kF32;
  result->scale_ue4m3 = !fields.flag(23);
  const UmmaScaleRule& rule = *umma_scale_rule(form.kind, form.scale_vectors);
  if (!(result->scale_ue4m3 ? rule.ue4m3 : rule.ue8m0)) {
    fields.refuse(23, 1,
                  "with " + std::to_string(form.scale_vectors) +
                      " scale factors for each row the format is ue8m0, which has 1 there");
  }
  result->scale_a_id = scale_id(fields, 29, form.scale_vectors);
  result->scale_b_id = scale_id(fields, 4, form.scale_vectors);
}

void check_transpose(const Fields& fields, const UmmaKindFacts& facts, int position, Type type) {
  if (!fields.flag(position)) return;
  if (!facts.transposes) fields.refuse(position, 1, "operands are K-major, it must be 0");
  if (!fills_bytes(type)) {
    fields.refuse(position, 1, "operands of " + std::string(type_name(type)) +
                                   " are K-major, it must be 0");
  }
}

void parse_sparse(const Fields& fields, const UmmaForm& form, UmmaInstruction* result) {
  if (!form.sparse) return fields.require_zero(2, 1, "a sparse A belongs to tcgen05.mma.sp");
  if (!fields.flag(2)) fields.refuse(2, 1, "tcgen05.mma.sp has 1 there");
  result->metadata_id = static_cast<int>(fields.at(0, 2));
  const bool pairs = form.kind == UmmaKind::kF16 || form.kind == UmmaKind::kTf32;
  if (result->metadata_id > (pairs ? 1 : 0)) {
    fields.refuse(0, 2, pairs ? "the sparsity selector is 0 or 1" : "the sparsity selector is 0");
  }
}

bool is_byte(Type type) { return type_bits(type) == 8; }

}  // namespace

void check_umma(const UmmaForm& form) {
  const UmmaKindFacts& facts = umma_kind_facts(form.kind);
  if (form.weight_stationary) {
    if (!facts.weight_stationary) fault("kind::%s has no .ws", facts.name);
    if (form.cta_group != 1) fault("tcgen05.mma.ws takes cta_group::1 only");
  }
  if (form.sparse && (form.weight_stationary || facts.block_scaled || form.shift_a)) {
    fault("tcgen05.mma.sp with .ws, .block_scale or .ashift is not supported");
  }
  if (form.shift_a) {
    if (form.weight_stationary) fault("tcgen05.mma.ws has no .ashift");
    if (facts.block_scaled) fault("kind::%s has no .ashift", facts.name);
    if (!form.a_in_tensor_memory) fault(".ashift needs A in tensor memory");
  }
  if (facts.block_scaled != (form.scale_vectors != 0)) {
    fault(facts.block_scaled ? "kind::%s needs .block_scale" : "kind::%s has no .block_scale",
          facts.name);
  }
  if (facts.block_scaled && umma_scale_rule(form.kind, form.scale_vectors) == nullptr) {
    fault("kind::%s has no %d scale factors for each row: mxf8f6f4 has 1, mxf4 has 2 and mxf4nvf4 "
          "has 2 or 4",
          facts.name, form.scale_vectors);
  }
  if (form.scale_input < 0 || form.scale_input > 15) {
    fault("scale-input-d is %d, it must be 0 to 15", form.scale_input);
  }
  if (form.scale_input != 0 && (!facts.scales_input || form.weight_stationary)) {
    fault("scale-input-d is allowed for kind::f16 and kind::tf32 without .ws only");
  }
}

UmmaInstruction parse_umma_instruction(const UmmaForm& form, uint32_t bits) {
  const UmmaKindFacts& facts = umma_kind_facts(form.kind);
  const Fields fields(facts, bits);
  UmmaInstruction result{};
  parse_sparse(fields, form, &result);
  const bool two_bits_b = facts.k == 64;  // bit 12 is reserved there
  result.a = fields.type(7, 3, facts.operands);
  result.b = fields.type(10, two_bits_b ? 2 : 3, facts.operands);
  result.k = facts.k;
  result.b_k = form.sparse ? 2 * facts.k : facts.k;
  if (facts.block_scaled) {
    parse_scaled(fields, form, &result);
  } else {
    fields.require_zero(6, 1, "it is reserved");
    parse_dense(fields, facts, form, &result);
  }
  for (int position : {13, 14}) {
    if (fields.flag(position) && !facts.negates) {
      fields.refuse(position, 1, "operands cannot be negated");
    }
  }
  check_transpose(fields, facts, 15, result.a);
  check_transpose(fields, facts, 16, result.b);
  result.negate_a = fields.flag(13);
  result.negate_b = fields.flag(14);
  result.transpose_a = fields.flag(15);
  result.transpose_b = fields.flag(16);
  if (result.transpose_a && form.a_in_tensor_memory) {
    fields.refuse(15, 1, "A in tensor memory is K-major, it must be 0");
  }
  // The field of a block-scaled kind ends with the same two bits.
  result.m = static_cast<int>(fields.at(24, 5)) * 16;
  result.n = static_cast<int>(fields.at(17, 6)) * 8;
  check_umma_shape(form.kind, form.cta_group, form.weight_stationary, result.m, result.n);
  const int step = 16 * form.cta_group;
  if (result.transpose_b && is_byte(result.b) && result.n % step != 0) {
    fields.refuse(17, 6, "an MN-major B of 8-bit elements has N in steps of " +
                             std::to_string(step));
  }
  if (form.sparse && result.m != 128 * form.cta_group) {
    fields.refuse(24, 5, "the metadata of fewer than 128 rows of each CTA is not supported");
  }
  if (form.shift_a && result.m < 128) fields.refuse(24, 5, ".ashift needs M of 128 or 256");
  return result;
}

}  // namespace warploom::emulator
