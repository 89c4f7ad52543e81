// Copies and fills, in streams.

#ifndef WARPLOOM_EMULATOR_DRIVER_COPY_H_
#define WARPLOOM_EMULATOR_DRIVER_COPY_H_

#include <cstddef>
#include <cstdint>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/graph.h"

namespace warploom::emulator {

// Rows of bytes. `pitch` and `slice` are from row to row and from plane to plane.
struct CopySide {
  void* pointer;
  bool on_device;  // it has to lie in an allocation
  std::size_t pitch = 0;
  std::size_t slice = 0;
};

struct CopyExtent {
  std::size_t width;  // bytes
  std::size_t rows = 1;
  std::size_t planes = 1;
};

// What copies when it is called; returns a CUresult.
Work copy_work(void* stream, const CopySide& to, const CopySide& from, const CopyExtent& extent);
// Writes rows of numbers of `width` bytes each.
Work fill_work(void* stream, void* to, std::size_t pitch, uint32_t value, std::size_t width,
               std::size_t columns, std::size_t rows);

// The same for the structures of the driver API. False, with an error, if they name arrays
// of textures or no kind of memory.
bool read_copy(const abi::Copy2d& copy, CopySide* to, CopySide* from, CopyExtent* extent);
bool read_copy(const abi::Copy3d& copy, CopySide* to, CopySide* from, CopyExtent* extent);

// At once, or as a node of the graph that the stream captures into.
int submit_copy(void* stream, const CopySide& to, const CopySide& from, const CopyExtent& extent);
int submit_fill(void* stream, void* to, std::size_t pitch, uint32_t value, std::size_t width,
                std::size_t columns, std::size_t rows);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_COPY_H_
