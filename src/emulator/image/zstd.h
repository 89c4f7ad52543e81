// Frames of Zstandard (RFC 8878). Dictionaries are not used by fat binaries, and not supported.

#ifndef WARPLOOM_EMULATOR_IMAGE_ZSTD_H_
#define WARPLOOM_EMULATOR_IMAGE_ZSTD_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace warploom::emulator::image {

// A Fault if the frame is damaged, or is of more than `most` bytes. Checksums are not compared.
std::string decompress_zstd(std::string_view frame, std::size_t most);

}  // namespace warploom::emulator::image

#endif  // WARPLOOM_EMULATOR_IMAGE_ZSTD_H_
