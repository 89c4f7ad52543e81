// What programs give a driver to load, and the PTX in it: text, fat binaries as nvcc embeds them, and
// files with these.

#ifndef WARPLOOM_EMULATOR_IMAGE_IMAGE_H_
#define WARPLOOM_EMULATOR_IMAGE_IMAGE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/base/device.h"

namespace warploom::emulator::image {

// The PTX of an image that the device executes: that of the highest architecture. The image ends
// where it says itself, or with a null if it is text. A Fault if there is none; it says why.
std::string find_ptx(const void* image, const Device& device);

// Whether bytes with a known end are an image whose end is not beyond them.
bool is_whole(std::string_view bytes);

// Of a file that may be an executable, an object file or a cubin: the fat binaries in its sections.
std::vector<std::string_view> fat_binaries_of(std::string_view elf);

// PTX of several modules as the text of one; the first header holds for all.
std::string join_ptx(const std::vector<std::string>& texts);

}  // namespace warploom::emulator::image

#endif  // WARPLOOM_EMULATOR_IMAGE_IMAGE_H_
