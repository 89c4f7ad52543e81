// Blocks of LZ4 (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md).

#ifndef WARPLOOM_EMULATOR_IMAGE_LZ4_H_
#define WARPLOOM_EMULATOR_IMAGE_LZ4_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace warploom::emulator::image {

// A Fault if the block is damaged, or is of another size than `size` bytes.
std::string decompress_lz4(std::string_view block, std::size_t size);

}  // namespace warploom::emulator::image

#endif  // WARPLOOM_EMULATOR_IMAGE_LZ4_H_
