// What the instructions tcgen05.* share.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_TENSOR_CORE_TCGEN05_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_TENSOR_CORE_TCGEN05_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "emulator/exec/isa/decoder.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/tensor/tensor_memory.h"

namespace warploom::emulator {

// The CTAs that an instruction of cta_group::1 or ::2 works for. A pair is two CTAs of a cluster
// whose ranks differ in the lowest bit; that of even rank comes first.
struct TensorGroup {
  uint32_t count = 1;
  std::array<Cta*, 2> ctas{};
};

// A Fault if the CTA has no peer.
TensorGroup tensor_group(const Warp& warp, uint32_t cta_group);

// .cta_group::1 or .cta_group::2, which are mandatory.
uint32_t take_cta_group(Decoder& decoder);
// .sync.aligned, which are mandatory for the instructions of whole warps.
void take_aligned(Decoder& decoder);
void check_whole_warp(const Warp& warp, uint32_t active);
// A vector of 32-bit registers, or one of them.
std::vector<Ref> take_tensor_registers(Decoder& decoder, const ptx::Operand& operand, bool written);

// The operand [taddr] in one lane, or in all lanes, which must have the same.
uint32_t tensor_address(const Warp& warp, const Op& op, int lane);
uint32_t uniform_tensor_address(const Warp& warp, const Op& op);

// An asynchronous operation that a thread issues: mma, cp, shift, commit. Those of a pair of CTAs
// complete in the order of their issue, also of different threads (PTX ISA, "tcgen05 Memory
// Consistency Model", "Pipelined instructions"), at any time. `complete` does all the work.
void issue_tensor_operation(Warp& warp, const Op& op, std::function<void()> complete);

// One for every group of instructions; the name that they share has been taken.
void decode_tcgen05_alloc(Decoder& decoder);
void decode_tcgen05_dealloc(Decoder& decoder);
void decode_tcgen05_relinquish(Decoder& decoder);
void decode_tcgen05_load(Decoder& decoder);
void decode_tcgen05_store(Decoder& decoder);
void decode_tcgen05_copy(Decoder& decoder);
void decode_tcgen05_shift(Decoder& decoder);
void decode_tcgen05_commit(Decoder& decoder);
void decode_tcgen05_mma(Decoder& decoder);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_TENSOR_CORE_TCGEN05_H_
