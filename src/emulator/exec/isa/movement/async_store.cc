// st.async, red.async and st.bulk (PTX ISA, "Data Movement and Conversion Instructions").
//
// The first two write shared memory of a CTA of the cluster and count their bytes at an mbarrier
// there. Unlike bulk copies they belong to the generic proxy. With .release they write global
// memory and count nowhere.

#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulator/async/bulk_copy.h"
#include "emulator/check/checker.h"
#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/complete_bytes.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/isa/memory_hints.h"
#include "emulator/exec/isa/movement/families.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/machine/counters.h"

namespace warploom::emulator {
namespace {

constexpr uint32_t kMostBytes = 16;

struct AsyncStoreForm {
  Address mbarrier;
  Type type = Type::kNone;
  uint32_t bytes = 0;  // of one lane
  Reduction reduction = Reduction::kNone;
};

// A reduction reads what it changes.
void count(const Warp& warp, uint64_t place, uint64_t bytes, bool reduces) {
  if (Counters* counters = warp.cluster().counters()) {
    counters->accessed(warp, ptx::Space::kShared, place, reduces ? bytes : 0, bytes);
  }
}

Step store_async(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const AsyncStoreForm*>(op.form);
  const Ref* refs = warp.program().refs.data() + op.first;
  Cluster& cluster = warp.cluster();
  for_each_lane(active, [&](int lane) {
    auto address = static_cast<uint32_t>(warp.address(op, lane));
    auto mbarrier = static_cast<uint32_t>(warp.address(form.mbarrier, lane));
    if (address % form.bytes != 0) {
      fault_of(FaultKind::kMisaligned, "lane %d: the address 0x%x is not a multiple of %u", lane,
               address, form.bytes);
    }
    if (shared_rank(address) != shared_rank(mbarrier)) {
      fault("the data goes to CTA %u of the cluster and the mbarrier is in CTA %u",
            shared_rank(address), shared_rank(mbarrier));
    }
    std::array<uint8_t, kMostBytes> data{};
    std::size_t size = form.bytes / op.count;
    for (uint32_t i = 0; i < op.count; ++i) {
      uint64_t value = warp.value(refs[i], lane);
      std::memcpy(data.data() + i * size, &value, size);
    }
    count(warp, address, form.bytes, form.reduction != Reduction::kNone);
    TicketPtr ticket;
    if (Checker* checker = checker_of(cluster)) {
      ticket = checker->issue(warp, op, lane);
      ticket->async_proxy = false;
    }
    cluster.completions().add(op, [=, &cluster, &form] {
      if (ticket != nullptr) {
        checker_of(cluster)->complete_on(*ticket, mbarrier);
        bool reduces = form.reduction != Reduction::kNone;
        checker_of(cluster)->async_shared(*ticket, address, form.bytes,
                                        reduces ? Touch::kReadWrite : Touch::kWrite);
      }
      uint8_t* to = cluster.shared_at(address, form.bytes);
      if (form.reduction == Reduction::kNone) {
        std::memcpy(to, data.data(), form.bytes);
      } else {
        bulk_reduce(form.type, form.reduction, to, data.data(), form.bytes);
      }
      complete_bytes(cluster, mbarrier, form.bytes, ticket);
    });
  });
  return Step::kNext;
}

struct ReleaseForm {
  ptx::Space space = ptx::Space::kGlobal;
  Type type = Type::kNone;
  uint32_t bytes = 0;
  Reduction reduction = Reduction::kNone;
  Scope scope = Scope::kDevice;
};

// Nothing tells when these have been performed: at once is as good as any other time.
Step store_release(Warp& warp, const Op& op, uint32_t active) {
  const auto& form = *static_cast<const ReleaseForm*>(op.form);
  if (Checker* checker = checker_of(warp.cluster())) {
    bool reduces = form.reduction != Reduction::kNone;
    checker->generic(warp, op, active, form.space, form.bytes,
                     reduces ? Touch::kReadWrite : Touch::kWrite, {Order::kRelease, form.scope});
  }
  for_each_lane(active, [&](int lane) {
    uint64_t value = warp.value(op.s[0], lane);
    uint8_t* to = resolve(warp, form.space, lane, warp.address(op, lane), form.bytes, form.bytes);
    bulk_reduce(form.type, form.reduction, to, reinterpret_cast<uint8_t*>(&value), form.bytes);
  });
  return Step::kNext;
}

// The type of red.async. Sums of signed integers are those of unsigned ones.
Type take_integer(Decoder& decoder, Reduction reduction) {
  const Type type = decoder.modifiers.take_type();
  const bool wide = type == Type::kU64 || type == Type::kS64;
  if (wide && reduction == Reduction::kAdd) return Type::kU64;
  if (is_float(type) || type_bits(type) != 32) {
    decoder.fail("it takes 32-bit integers, or .add of 64-bit integers");
  }
  check_reduction(type, reduction);
  return type;
}

// st.async.mmio.release.sys.global.u32 [address], value; `form` has the reduction of red.async.
void decode_release(Decoder& decoder, ReleaseForm form) {
  Modifiers& modifiers = decoder.modifiers;
  modifiers.take("mmio");
  form.scope = take_scope(modifiers);
  form.space = take_space(decoder);
  if (form.space != ptx::Space::kGlobal && form.space != ptx::Space::kGeneric) {
    decoder.fail("with .release it writes global memory");
  }
  const bool reduces = form.reduction != Reduction::kNone;
  form.type = reduces ? take_integer(decoder, form.reduction) : modifiers.take_type();
  int bits = type_bits(form.type);
  if (bits < 8 || bits > 64) decoder.fail("it needs a type of 8 to 64 bits");
  form.bytes = static_cast<uint32_t>(bits) / 8;
  decoder.expect_count(2, 2);
  decoder.op.address = decoder.address(decoder.operand(0));
  decoder.op.s[0] = decoder.source(decoder.operand(1), bits < 16 ? Type::kB16 : form.type);
  decoder.form(form);
  decoder.op.run = store_release;
}

bool take_release(Decoder& decoder) {
  decoder.modifiers.take("async");
  return decoder.modifiers.take("release");
}

void take_completion(Decoder& decoder) {
  if (!decoder.modifiers.take("mbarrier::complete_tx::bytes")) {
    decoder.fail("it completes on an mbarrier, or is .release");
  }
  decoder.modifiers.take_all({"weak", "relaxed", "cluster", "shared::cluster"});
}

void finish_form(Decoder& decoder, AsyncStoreForm form) {
  decoder.expect_count(3, 3);
  decoder.op.address = decoder.address(decoder.operand(0));
  decoder.sources(decoder.operand(1), form.type);
  form.mbarrier = decoder.address(decoder.operand(2));
  form.bytes = static_cast<uint32_t>(type_bits(form.type)) / 8 * decoder.op.count;
  decoder.form(form);
  decoder.op.run = store_async;
}

void decode_store_async(Decoder& decoder) {
  if (take_release(decoder)) {
    decode_release(decoder, ReleaseForm{});
    return;
  }
  take_completion(decoder);
  int vector = decoder.modifiers.take_one({"v2", "v4"});
  AsyncStoreForm form;
  form.type = decoder.modifiers.take_type();
  int bits = type_bits(form.type);
  uint32_t count = vector < 0 ? 1 : 2u << vector;
  const ptx::Operand& values = decoder.operand(1);
  bool is_vector = values.kind == ptx::Operand::kVector;
  if ((is_vector ? values.elements.size() : 1) != count) {
    decoder.fail("it has a wrong number of registers");
  }
  if ((bits != 32 && bits != 64) || bits / 8 * static_cast<int>(count) > 16) {
    decoder.fail("it stores 4, 8 or 16 bytes of 32-bit or 64-bit values");
  }
  finish_form(decoder, form);
}

void decode_reduce_async(Decoder& decoder) {
  bool release = take_release(decoder);
  if (!release) take_completion(decoder);
  static constexpr Reduction kReductions[] = {
      Reduction::kAdd, Reduction::kMin, Reduction::kMax, Reduction::kInc,
      Reduction::kDec, Reduction::kAnd, Reduction::kOr,  Reduction::kXor};
  int index =
      decoder.modifiers.take_one({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
  if (index < 0) decoder.fail("it needs an operation");
  if (release) {
    ReleaseForm form;
    form.reduction = kReductions[index];
    decode_release(decoder, form);
    return;
  }
  AsyncStoreForm form;
  form.reduction = kReductions[index];
  form.type = take_integer(decoder, form.reduction);
  finish_form(decoder, form);
}

// The only initial value is zero.
Step store_bulk(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    uint64_t address = warp.address(op, lane);
    uint64_t bytes = warp.value(op.s[0], lane);
    if ((address | bytes) % 8 != 0 || bytes > kOffsetMask) {
      fault("st.bulk of %" PRIu64 " bytes at 0x%" PRIx64 ": both must be multiples of 8, and the "
            "bytes lie in shared memory",
            bytes, address);
    }
    auto space = static_cast<ptx::Space>(op.flag);
    uint32_t place = shared_from(space, address);
    if (bytes == 0) return;
    count(warp, place, bytes, false);
    if (Checker* checker = checker_of(warp.cluster())) {
      checker->generic_lane(warp, op, lane, ptx::Space::kShared, place,
                            static_cast<uint32_t>(bytes), Touch::kWrite);
    }
    std::memset(warp.cluster().shared_at(place, static_cast<uint32_t>(bytes)), 0, bytes);
  });
  return Step::kNext;
}

void decode_store_bulk(Decoder& decoder) {
  decoder.modifiers.take_all({"bulk", "weak"});
  decoder.op.flag = static_cast<uint8_t>(take_space(decoder));
  decoder.expect_count(3, 3);
  decoder.op.address = decoder.address(decoder.operand(0));
  decoder.op.s[0] = decoder.source(decoder.operand(1), Type::kU64);
  if (decoder.integer(decoder.operand(2)) != 0) decoder.fail("the initial value must be 0");
  decoder.op.run = store_bulk;
}

}  // namespace

void add_async_store_ops(DecodeTable& table) {
  table["st.async"] = decode_store_async;
  table["red.async"] = decode_reduce_async;
  table["st.bulk"] = decode_store_bulk;
}

}  // namespace warploom::emulator
