// tcgen05.mma: operands are read when it is issued, the product is formed when it completes.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "emulator/check/tensor_memory_check.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/tensor_core/tcgen05.h"
#include "emulator/exec/machine/counters.h"
#include "emulator/tensor/umma.h"
#include "emulator/tensor/umma_collector.h"
#include "emulator/tensor/umma_footprint.h"

namespace warploom::emulator {
namespace {

struct UmmaOp {
  UmmaForm form{};
  UmmaCollector collector;
  Address d;
  Ref a;              // a descriptor, or
  Address a_address;  // in tensor memory
  Ref b;
  Ref instruction;
  Ref accumulate;
  std::vector<Ref> disabled_lanes;  // empty, or four words for each CTA
  Ref zero_columns;                 // may be absent
  Address scale_a;
  Address scale_b;
  Address metadata;  // of a sparse A
};

uint32_t word_at(const Warp& warp, const Address& address, int lane) {
  return static_cast<uint32_t>(warp.address(address, lane));
}

UmmaOperands operands_of(const Warp& warp, const UmmaOp& op, int lane) {
  UmmaOperands result{};
  result.a = op.form.a_in_tensor_memory ? word_at(warp, op.a_address, lane)
                                        : warp.lanes<uint64_t>(op.a)[lane];
  result.b = warp.lanes<uint64_t>(op.b)[lane];
  result.d = word_at(warp, op.d, lane);
  result.instruction = warp.lanes<uint32_t>(op.instruction)[lane];
  result.accumulate = (warp.predicate(op.accumulate) >> lane & 1) != 0;
  for (std::size_t i = 0; i < op.disabled_lanes.size(); ++i) {
    result.disabled_lanes[i] = warp.lanes<uint32_t>(op.disabled_lanes[i])[lane];
  }
  if (op.zero_columns.present()) {
    result.zero_columns = warp.lanes<uint64_t>(op.zero_columns)[lane];
  }
  if (op.form.scale_vectors != 0) {
    result.scale_a = word_at(warp, op.scale_a, lane);
    result.scale_b = word_at(warp, op.scale_b, lane);
  }
  if (op.form.sparse) result.metadata = word_at(warp, op.metadata, lane);
  return result;
}

// The fields of an instruction descriptor that say how A and how B is read.
constexpr uint32_t kFieldsOfA = 31u << 24 | 1u << 15 | 1u << 13 | 7u << 7;
constexpr uint32_t kFieldsOfB = 63u << 17 | 1u << 16 | 1u << 14 | 7u << 10;

CollectedMatrix collected(const UmmaOp& op, const UmmaOperands& operands) {
  if (op.form.weight_stationary) return {operands.b, operands.instruction & kFieldsOfB};
  return {operands.a, operands.instruction & kFieldsOfA};
}

// What the checker is told: the tensor core reads shared memory by the async proxy.
void show(Checker& checker, const TicketPtr& ticket, const UmmaPlan& plan,
          const TensorGroup& group) {
  TensorMemoryCheck::Accessor accessor = checker.tensor_memory().execute(ticket);
  for (uint32_t i = 0; i < group.count; ++i) {
    const uint32_t rank = group.ctas[i]->rank();
    const int cta = static_cast<int>(i);
    visit_umma_shared(plan, [&](uint32_t offset, uint32_t bytes) {
      checker.async_shared(*ticket, shared_address(rank, offset), bytes, Touch::kRead);
    });
    const auto read = [&](uint32_t lane, uint32_t column, uint32_t columns) {
      accessor.read(rank, lane, column, columns);
    };
    visit_umma_tensor_operands(plan, cta, read);
    if (plan.accumulate) visit_umma_d(plan, cta, read);
    visit_umma_d(plan, cta, [&](uint32_t lane, uint32_t column, uint32_t columns) {
      accessor.write(rank, lane, column, columns);
    });
  }
}

// Each lane that is active issues an instruction of its own.
Step multiply(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const UmmaOp*>(op.form);
  Cta& cta = warp.cta();
  const TensorGroup group = tensor_group(warp, static_cast<uint32_t>(form.form.cta_group));
  for_each_lane(active, [&](int lane) {
    const UmmaOperands operands = operands_of(warp, form, lane);
    const UmmaPlan plan = plan_umma(form.form, operands);
    const CollectedMatrix matrix = collected(form, operands);
    Checker* checker = checker_of(cta.cluster());
    TicketPtr ticket = checker != nullptr ? checker->issue_tcgen05(warp, op, lane) : nullptr;
    issue_tensor_operation(warp, op, [=, &op, &form, &cta] {
      cta.collectors().apply(form.collector, matrix);
      if (checker != nullptr) show(*checker, ticket, plan, group);
      UmmaCta ctas[2] = {};
      for (uint32_t i = 0; i < group.count; ++i) {
        ctas[i] = {&group.ctas[i]->shared(), &group.ctas[i]->tensor_memory()};
      }
      umma(plan, ctas);
      if (Counters* counters = cta.cluster().counters()) {
        const auto& shape = plan.instruction;
        counters->tensor_work(op, uint64_t{2} * static_cast<uint64_t>(shape.m) *
                                      static_cast<uint64_t>(shape.n) *
                                      static_cast<uint64_t>(shape.k));
      }
    });
  });
  return Step::kNext;
}

UmmaKind take_kind(Decoder& decoder) {
  for (int i = 0; i <= static_cast<int>(UmmaKind::kMxf4nvf4); ++i) {
    const auto kind = static_cast<UmmaKind>(i);
    if (decoder.modifiers.take(std::string("kind::") + umma_kind_facts(kind).name)) return kind;
  }
  decoder.fail("it needs a kind: f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4 or mxf4nvf4");
}

// How many scale factors each row of A has.
int take_scale_vectors(Decoder& decoder, UmmaKind kind) {
  if (!decoder.modifiers.take("block_scale")) return 0;
  const int found = decoder.modifiers.take_one(
      {"scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32"});
  if (found >= 0 && found < 3) return 1 << found;
  if (found < 0 && kind == UmmaKind::kMxf4nvf4) {
    decoder.fail("kind::mxf4nvf4 needs .block16, .block32, .scale_vec::2X or .scale_vec::4X");
  }
  const int block = found == 3 ? 16 : 32;
  return umma_kind_facts(kind).k / block;
}

// .collector::BUFFER::USE
void take_collector(Decoder& decoder, UmmaOp& result) {
  const bool weight_stationary = result.form.weight_stationary;
  constexpr const char* kBuffers[] = {"a", "b0", "b1", "b2", "b3"};
  constexpr const char* kUses[] = {"discard", "fill", "use", "lastuse"};
  result.collector.buffer = weight_stationary ? 1 : 0;
  for (std::size_t buffer = 0; buffer < std::size(kBuffers); ++buffer) {
    for (std::size_t use = 0; use < std::size(kUses); ++use) {
      const std::string name = std::string("collector::") + kBuffers[buffer] + "::" + kUses[use];
      if (!decoder.modifiers.take(name)) continue;
      if (weight_stationary != (buffer != 0)) {
        decoder.fail(weight_stationary ? "the collector buffers of .ws are b0 to b3"
                                       : "the collector buffer without .ws is a");
      }
      result.collector = {buffer, static_cast<CollectorUse>(use)};
    }
  }
  const CollectorUse use = result.collector.use;
  if (result.form.shift_a && (use == CollectorUse::kFill || use == CollectorUse::kUse)) {
    decoder.fail(".collector::a::fill and .collector::a::use cannot be combined with .ashift");
  }
}

void take_form(Decoder& decoder, UmmaOp& result) {
  UmmaForm& form = result.form;
  form.sparse = decoder.modifiers.take("sp");
  form.weight_stationary = decoder.modifiers.take("ws");
  form.cta_group = static_cast<int>(take_cta_group(decoder));
  form.kind = take_kind(decoder);
  form.scale_vectors = take_scale_vectors(decoder, form.kind);
  form.shift_a = decoder.modifiers.take("ashift");
  take_collector(decoder, result);
}

// { disable-output-lane }, enable-input-d {, scale-input-d}
void take_dense(Decoder& decoder, std::size_t next, UmmaOp& result) {
  if (decoder.operand(next).kind == ptx::Operand::kVector) {
    const auto& elements = decoder.operand(next++).elements;
    const auto words = static_cast<std::size_t>(4 * result.form.cta_group);
    if (elements.size() != words) {
      decoder.fail("disable-output-lane has " + std::to_string(elements.size()) +
                   " elements; with .cta_group::" + std::to_string(result.form.cta_group) +
                   " it has " + std::to_string(words));
    }
    for (const ptx::Operand& element : elements) {
      result.disabled_lanes.push_back(decoder.source(element, Type::kB32));
    }
  }
  result.accumulate = decoder.predicate(decoder.operand(next++));
  if (next < decoder.count()) {
    const int64_t scale = decoder.integer(decoder.operand(next++));
    if (scale < 0 || scale > 15) {
      decoder.fail("scale-input-d is " + std::to_string(scale) + ", it must be 0 to 15");
    }
    result.form.scale_input = static_cast<int>(scale);
  }
  decoder.expect_count(next, next);
}

// enable-input-d {, zero-column-mask-desc}
void take_weight_stationary(Decoder& decoder, std::size_t next, UmmaOp& result) {
  result.accumulate = decoder.predicate(decoder.operand(next++));
  if (next < decoder.count()) {
    result.zero_columns = decoder.source(decoder.operand(next++), Type::kB64);
  }
  decoder.expect_count(next, next);
}

// [scale-A-tmem], [scale-B-tmem], enable-input-d
void take_scaled(Decoder& decoder, std::size_t next, UmmaOp& result) {
  decoder.expect_count(next + 3, next + 3);
  result.scale_a = decoder.address(decoder.operand(next));
  result.scale_b = decoder.address(decoder.operand(next + 1));
  result.accumulate = decoder.predicate(decoder.operand(next + 2));
}

void check_form(const Decoder& decoder, const UmmaForm& form) {
  try {
    check_umma(form);
  } catch (const Fault& error) {
    decoder.fail(error.what());
  }
}

}  // namespace

void decode_tcgen05_mma(Decoder& decoder) {
  UmmaOp result;
  take_form(decoder, result);
  result.form.a_in_tensor_memory = decoder.operand(1).kind == ptx::Operand::kAddress;
  check_form(decoder, result.form);
  result.d = decoder.address(decoder.operand(0));
  if (result.form.a_in_tensor_memory) {
    result.a_address = decoder.address(decoder.operand(1));
  } else {
    result.a = decoder.source(decoder.operand(1), Type::kB64);
  }
  result.b = decoder.source(decoder.operand(2), Type::kB64);
  std::size_t next = 3;
  if (result.form.sparse) result.metadata = decoder.address(decoder.operand(next++));
  result.instruction = decoder.source(decoder.operand(next++), Type::kB32);
  if (result.form.scale_vectors != 0) {
    take_scaled(decoder, next, result);
  } else if (result.form.weight_stationary) {
    take_weight_stationary(decoder, next, result);
  } else {
    take_dense(decoder, next, result);
    check_form(decoder, result.form);
  }
  decoder.form(std::move(result));
  decoder.op.run = multiply;
}

}  // namespace warploom::emulator
