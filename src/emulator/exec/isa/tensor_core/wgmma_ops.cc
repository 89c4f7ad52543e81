// wgmma: four warps meet and multiply; the products are in matrix/wgmma.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "emulator/check/checker.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/tensor_core/families.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/matrix/wgmma.h"

namespace warploom::emulator {
namespace {

struct WgmmaOp {
  WgmmaForm form;
  std::vector<Ref> d;
  std::vector<Ref> a;  // empty: s[0] is a descriptor
  Ref metadata;        // of a sparse A
};

const WgmmaOp& form_of(const Op& op) { return *static_cast<const WgmmaOp*>(op.form); }

constexpr std::size_t kMostRegisters = 4 * 256;

// The shared memory that the instruction reads.
void note_operands(Checker& checker, Cta& cta, uint32_t group, const Op& op, const WgmmaForm& form,
                   const WgmmaOperands& operands) {
  TicketPtr ticket = checker.execute_wgmma(cta, group, op);
  wgmma_reads(form, operands, [&](uint32_t offset, uint32_t bytes) {
    checker.async_shared(*ticket, shared_address(cta.rank(), offset), bytes, Touch::kRead);
  });
}

// Multiplies with the registers of the four warps and the shared memory as they are now.
void execute(Cta& cta, uint32_t group, const WgmmaIssue& issue) {
  const WgmmaOp& op = form_of(*issue.op);
  std::array<uint32_t*, kMostRegisters> d;
  std::array<const uint32_t*, kMostRegisters> a;
  WgmmaOperands operands{};
  for (std::size_t warp = 0; warp < 4; ++warp) {
    const Warp& member = *cta.warps()[4 * group + warp];
    for (std::size_t i = 0; i < op.d.size(); ++i) d[4 * i + warp] = member.lanes<uint32_t>(op.d[i]);
    for (std::size_t i = 0; i < op.a.size(); ++i) a[4 * i + warp] = member.lanes<uint32_t>(op.a[i]);
    if (op.form.sparse) operands.metadata[warp] = member.lanes<uint32_t>(op.metadata);
  }
  operands.d = d.data();
  operands.a = a.data();
  operands.a_descriptor = issue.a_descriptor;
  operands.b_descriptor = issue.b_descriptor;
  operands.accumulate = issue.accumulate;
  if (Checker* checker = checker_of(cta.cluster())) {
    note_operands(*checker, cta, group, *issue.op, op.form, operands);
  }
  wgmma(op.form, operands, cta.shared());
}

void check_warpgroup(const Warp& warp, uint32_t active) {
  if (active != kAllLanes) fault("wgmma needs all 32 lanes, it has mask 0x%x", active);
  if ((warp.id() | 3) >= warp.cta().warps().size()) {
    fault("warp %u is not in a whole warpgroup of four warps", warp.id());
  }
}

Step multiply(Warp& warp, const Op& op, uint32_t active) {
  check_warpgroup(warp, active);
  Cta& cta = warp.cta();
  uint32_t group = warp.id() / 4;
  WgmmaIssue issue;
  issue.op = &op;
  if (op.s[0].present()) issue.a_descriptor = warp.lanes<uint64_t>(op.s[0])[0];
  issue.b_descriptor = warp.lanes<uint64_t>(op.s[1])[0];
  issue.accumulate = (warp.predicate(op.s[2]) & 1) != 0;
  Warpgroup& warpgroup = cta.warpgroup(warp.id());
  // The four warps meet here and the product is there when they go on. Later would be legal for the
  // instruction, but compilers copy accumulators to other registers before the wait in PTX, and
  // rely on ptxas to give both the same register.
  if (!warpgroup.issue(warp.id() % 4, issue)) {
    warp.park({Wait::kWarpgroup, group});
    return Step::kPark;
  }
  warpgroup.execute_issued([&](const WgmmaIssue& next) { execute(cta, group, next); });
  cta.wake(Wait::kWarpgroup, group);
  return Step::kNext;
}

Step commit(Warp& warp, const Op&, uint32_t active) {
  check_warpgroup(warp, active);
  warp.cta().warpgroup(warp.id()).commit(warp.id() % 4);
  if (Checker* checker = checker_of(warp.cluster())) checker->commit_wgmma(warp);
  return Step::kNext;
}

Step wait(Warp& warp, const Op& op, uint32_t active) {
  check_warpgroup(warp, active);
  Cta& cta = warp.cta();
  uint32_t group = warp.id() / 4;
  bool done = cta.warpgroup(warp.id()).wait(
      warp.id() % 4, op.count, [&](const WgmmaIssue& next) { execute(cta, group, next); });
  if (done) {
    if (Checker* checker = checker_of(warp.cluster())) checker->wait_wgmma(warp, op.count);
    return Step::kNext;
  }
  warp.park({Wait::kWarpgroup, group});
  return Step::kRetry;
}

Step fence(Warp& warp, const Op&, uint32_t active) {
  check_warpgroup(warp, active);
  if (Checker* checker = checker_of(warp.cluster())) checker->fence_wgmma(warp);
  return Step::kNext;
}

std::vector<Ref> take_registers(Decoder& decoder, const ptx::Operand& operand) {
  if (operand.kind != ptx::Operand::kVector) decoder.fail("it needs a vector of registers");
  if (operand.elements.size() * 4 > kMostRegisters) decoder.fail("it has too many registers");
  std::vector<Ref> result;
  for (const ptx::Operand& element : operand.elements) {
    if (element.kind == ptx::Operand::kNone) decoder.fail("a register is missing");
    result.push_back(decoder.destination(element, 32));
  }
  return result;
}

bool take_sign(Decoder& decoder, const ptx::Operand& operand) {
  int64_t scale = decoder.integer(operand);
  if (scale != 1 && scale != -1) decoder.fail("a scale must be 1 or -1");
  return scale == -1;
}

void take_types(Decoder& decoder, WgmmaForm& form) {
  form.sparse = decoder.modifiers.take("sp");
  decoder.modifiers.take_all({"sync", "aligned"});
  std::string shape = decoder.modifiers.take_first();
  int m = 0;
  if (std::sscanf(shape.c_str(), "m%dn%dk%d", &m, &form.n, &form.k) != 3 || m != 64) {
    decoder.fail("it needs a shape m64nNkK");
  }
  form.d = decoder.modifiers.take_type();
  form.a = decoder.modifiers.take_type();
  form.b = decoder.modifiers.take_type();
  form.satfinite = decoder.modifiers.take("satfinite");
  if (form.a == Type::kB1 && !(decoder.modifiers.take("and") && decoder.modifiers.take("popc"))) {
    decoder.fail("b1 needs .and.popc");
  }
}

void decode_multiply(Decoder& decoder) {
  WgmmaOp result;
  WgmmaForm& form = result.form;
  form = WgmmaForm{};
  take_types(decoder, form);
  Op& op = decoder.op;
  result.d = take_registers(decoder, decoder.operand(0));
  form.a_in_registers = decoder.operand(1).kind == ptx::Operand::kVector;
  if (form.a_in_registers) {
    result.a = take_registers(decoder, decoder.operand(1));
  } else {
    op.s[0] = decoder.source(decoder.operand(1), Type::kB64);
  }
  op.s[1] = decoder.source(decoder.operand(2), Type::kB64);
  std::size_t next = 3;
  if (form.sparse) {
    result.metadata = decoder.source(decoder.operand(next++), Type::kB32);
    const int64_t selector = decoder.integer(decoder.operand(next++));
    if (selector < 0 || selector > 1) decoder.fail("its sparsity selector must be 0 or 1");
    form.selector = static_cast<int>(selector);
  }
  op.s[2] = decoder.predicate(decoder.operand(next++));
  bool integer = form.d == Type::kS32;
  if (!integer) {
    form.negate_a = take_sign(decoder, decoder.operand(next++));
    form.negate_b = take_sign(decoder, decoder.operand(next++));
  }
  bool half = form.a == Type::kF16 || form.a == Type::kBf16;
  if (half && !form.a_in_registers) {
    form.trans_a = decoder.integer(decoder.operand(next++)) != 0;
  }
  if (half) form.trans_b = decoder.integer(decoder.operand(next++)) != 0;
  decoder.expect_count(next, next);
  try {
    check_wgmma(form);
  } catch (const Fault& error) {
    decoder.fail(error.what());
  }
  std::size_t registers = static_cast<std::size_t>(form.n / (form.d == Type::kF16 ? 4 : 2));
  if (result.d.size() != registers || (form.a_in_registers && result.a.size() != 4)) {
    decoder.fail("it has a wrong number of registers");
  }
  decoder.form(std::move(result));
  op.run = multiply;
}

void decode_wgmma(Decoder& decoder) {
  std::string kind = decoder.modifiers.take_first();
  decoder.op.flow = Flow::kSync;
  if (kind == "mma_async") return decode_multiply(decoder);
  decoder.modifiers.take_all({"sync", "aligned"});
  if (kind == "fence") {
    decoder.op.run = fence;
  } else if (kind == "commit_group") {
    decoder.op.run = commit;
  } else if (kind == "wait_group") {
    int64_t pending = decoder.integer(decoder.operand(0));
    if (pending < 0 || pending >= static_cast<int64_t>(Warpgroup::kMostGroups)) {
      decoder.fail("its number of groups is not supported");
    }
    decoder.op.count = static_cast<uint32_t>(pending);
    decoder.op.run = wait;
  } else {
    decoder.fail("it is not supported");
  }
}

}  // namespace

void add_wgmma_ops(DecodeTable& table) { table["wgmma"] = decode_wgmma; }

}  // namespace warploom::emulator
