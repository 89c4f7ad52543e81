#include "emulator/driver/copy.h"

#include "emulator/driver/guard.h"
#include "emulator/driver/session.h"
#include "emulator/driver/stream.h"

namespace warploom::emulator {
namespace {

char* move(void* pointer, std::size_t bytes) { return static_cast<char*>(pointer) + bytes; }

template <class Side>
bool read_side(const Side& side, std::size_t offset, CopySide* result) {
  if (side.type == abi::kTypeArray || side.type < abi::kTypeHost ||
      side.type > abi::kTypeUnified) {
    fail(abi::kNotSupported, "a copy names an array of a texture; arrays are not served");
    return false;
  }
  void* pointer = side.type == abi::kTypeHost ? side.host : reinterpret_cast<void*>(side.device);
  result->pointer = move(pointer, offset);
  result->on_device = side.type == abi::kTypeDevice;
  return true;
}

bool read_side_2d(const abi::CopySide2d& side, const CopyExtent& extent, CopySide* result) {
  if (!read_side(side, side.y * side.pitch + side.x, result)) return false;
  result->pitch = side.pitch != 0 ? side.pitch : extent.width;
  return true;
}

bool read_side_3d(const abi::CopySide3d& side, const CopyExtent& extent, CopySide* result) {
  const std::size_t pitch = side.pitch != 0 ? side.pitch : extent.width;
  const std::size_t slice = pitch * (side.height != 0 ? side.height : extent.rows);
  if (!read_side(side, side.z * slice + side.y * pitch + side.x, result)) return false;
  result->pitch = pitch;
  result->slice = slice;
  return true;
}

int submit_to(void* stream, NodeKind kind, const Work& work) {
  return guarded(abi::kInvalidValue, [&] {
    if (!is_stream(stream)) return fail(abi::kInvalidHandle, "there is no such stream");
    return submit(stream, kind, work);
  });
}

}  // namespace

Work copy_work(void* stream, const CopySide& to, const CopySide& from, const CopyExtent& extent) {
  return [=] {
    Session& session = Session::instance();
    session.end_overlap(stream);
    for (std::size_t plane = 0; plane < extent.planes; ++plane) {
      for (std::size_t row = 0; row < extent.rows; ++row) {
        const bool copied = session.copy(move(to.pointer, plane * to.slice + row * to.pitch),
                                         move(from.pointer, plane * from.slice + row * from.pitch),
                                         extent.width, to.on_device, from.on_device);
        if (!copied) return code_of(false, abi::kInvalidValue);
      }
    }
    return abi::kSuccess;
  };
}

Work fill_work(void* stream, void* to, std::size_t pitch, uint32_t value, std::size_t width,
               std::size_t columns, std::size_t rows) {
  return [=] {
    Session& session = Session::instance();
    session.end_overlap(stream);
    for (std::size_t row = 0; row < rows; ++row) {
      if (!session.fill(move(to, row * pitch), value, width, columns)) {
        return code_of(false, abi::kInvalidValue);
      }
    }
    return abi::kSuccess;
  };
}

bool read_copy(const abi::Copy2d& copy, CopySide* to, CopySide* from, CopyExtent* extent) {
  *extent = {copy.width, copy.height, 1};
  return read_side_2d(copy.to, *extent, to) && read_side_2d(copy.from, *extent, from);
}

bool read_copy(const abi::Copy3d& copy, CopySide* to, CopySide* from, CopyExtent* extent) {
  *extent = {copy.width, copy.height, copy.depth};
  return read_side_3d(copy.to, *extent, to) && read_side_3d(copy.from, *extent, from);
}

int submit_copy(void* stream, const CopySide& to, const CopySide& from, const CopyExtent& extent) {
  return submit_to(stream, NodeKind::kCopy, copy_work(stream, to, from, extent));
}

int submit_fill(void* stream, void* to, std::size_t pitch, uint32_t value, std::size_t width,
                std::size_t columns, std::size_t rows) {
  return submit_to(stream, NodeKind::kFill,
                   fill_work(stream, to, pitch, value, width, columns, rows));
}

}  // namespace warploom::emulator
