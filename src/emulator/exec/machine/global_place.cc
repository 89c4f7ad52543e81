#include "emulator/exec/machine/global_place.h"

#include <cinttypes>
#include <cstddef>
#include <cstring>

#include "emulator/async/tensor_map.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

// Where a parameter points to; 0 if it does not look like a pointer or a tensor map.
uint64_t pointee(const Launch& launch, const ptx::Variable& parameter) {
  const uint8_t* bytes = launch.parameters + parameter.offset;
  uint64_t value = 0;
  if (parameter.bytes == sizeof(value)) {
    std::memcpy(&value, bytes, sizeof(value));
  } else if (parameter.bytes == kTensorMapBytes) {
    try {
      value = tensor_map_fields(bytes).address;
    } catch (const Fault&) {
      return 0;  // some other structure of that size
    }
  }
  return value;
}

// ", parameter 2" if that parameter points into the range, or its tensor map does.
std::string parameter_of(const Launch& launch, const GlobalMemory::Range& range) {
  const auto& parameters = launch.program.function->parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    uint64_t pointer = pointee(launch, *parameters[i]);
    if (pointer != 0 && range.contains(pointer, 0)) return format(", parameter %zu", i);
  }
  return "";
}

}  // namespace

std::string describe_global(const Launch& launch, uint64_t address) {
  GlobalMemory::Range range;
  if (!launch.memory.nearest(address, range)) return "";
  return format(" (offset %" PRIu64 " of the %" PRIu64 " bytes at 0x%" PRIx64 "%s)",
                address - range.begin, range.end - range.begin, range.begin,
                parameter_of(launch, range).c_str());
}

std::string explain(const Fault& error, const Launch& launch) {
  const auto* out_of_bounds = dynamic_cast<const OutOfBounds*>(&error);
  if (out_of_bounds == nullptr) return error.what();
  uint64_t address = out_of_bounds->address();
  GlobalMemory::Range below, freed;
  bool has_below = launch.memory.nearest(address, below);
  std::string parameter = has_below ? parameter_of(launch, below) : "";
  // What was freed may lie behind what a parameter points to: then the kernel went beyond that.
  if (launch.memory.was_removed(address, freed)) {
    std::string of_freed = parameter_of(launch, freed);
    if (parameter.empty() || !of_freed.empty()) {
      return format("%s: use after free: they begin at offset %" PRIu64 " of the %" PRIu64
                    " bytes at 0x%" PRIx64 "%s, which were freed before the launch. "
                    "Fix: free memory after the last kernel that uses it",
                    error.what(), address - freed.begin, freed.end - freed.begin, freed.begin,
                    of_freed.c_str());
    }
  }
  if (!has_below) return error.what();
  return format("%s; the nearest below has %" PRIu64 " bytes at 0x%" PRIx64 "%s, and the access "
                "starts at its offset %" PRIu64,
                error.what(), below.end - below.begin, below.begin, parameter.c_str(),
                address - below.begin);
}

}  // namespace warploom::emulator
