#include "emulator/exec/isa/access.h"

#include <cinttypes>

#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

using ptx::Space;

uint8_t* resolve_global(Warp& warp, uint64_t address, uint32_t count) {
  if (!warp.global_range.contains(address, count)) {
    const Launch& launch = warp.cluster().launch();
    auto parameters = reinterpret_cast<uint64_t>(launch.parameters);
    GlobalMemory::Range own{parameters, parameters + launch.program.function->parameter_bytes};
    warp.global_range = own.contains(address, count) ? own : launch.memory.find(address, count);
  }
  return reinterpret_cast<uint8_t*>(address);
}

}  // namespace

uint8_t* resolve(Warp& warp, Space space, int lane, uint64_t address, uint32_t count,
                 uint32_t alignment) {
  if (address & (alignment - 1)) {
    fault_of(FaultKind::kMisaligned, "lane %d: the address 0x%" PRIx64 " is not a multiple of %u",
             lane, address, alignment);
  }
  if (space == Space::kGeneric) {
    uint64_t window = address & kWindowMask;
    space = window == kSharedWindow  ? Space::kShared
            : window == kLocalWindow ? Space::kLocal
                                     : Space::kGlobal;
    address &= ~kWindowMask | (space == Space::kGlobal ? kWindowMask : 0);
  }
  switch (space) {
    case Space::kShared:
      return warp.cluster().shared_at(static_cast<uint32_t>(address), count);
    case Space::kLocal:
      return warp.local(lane, address, count);
    default:
      return resolve_global(warp, address, count);
  }
}

uint32_t shared_from(Space space, uint64_t address) {
  if (space == Space::kGeneric && (address & kWindowMask) != kSharedWindow) {
    fault_of(FaultKind::kOutOfBounds, "the generic address 0x%" PRIx64 " is not in shared memory",
             address);
  }
  return static_cast<uint32_t>(address);
}

Space take_space(Decoder& decoder) {
  int index = decoder.modifiers.take_one({"global", "const", "param", "param::entry",
                                          "param::func", "shared",
                                          "shared::cta", "shared::cluster", "local"});
  static constexpr Space kSpaces[] = {Space::kGlobal, Space::kConst,  Space::kParam,
                                      Space::kParam,  Space::kLocal,  Space::kShared,
                                      Space::kShared, Space::kShared, Space::kLocal};
  return index < 0 ? Space::kGeneric : kSpaces[index];
}

}  // namespace warploom::emulator
