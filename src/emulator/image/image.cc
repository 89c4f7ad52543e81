#include "emulator/image/image.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>

#include "emulator/base/fault.h"
#include "emulator/image/fat_binary.h"

namespace warploom::emulator::image {
namespace {

constexpr char kElf[] = "\x7f" "ELF";

uint32_t magic_of(const void* image) {
  uint32_t magic;
  std::memcpy(&magic, image, sizeof(magic));
  return magic;
}

// The word behind .target, such as "sm_90a"; "" if there is none.
std::string target_of(const std::string& ptx) {
  const std::size_t at = ptx.find(".target");
  if (at == std::string::npos) return "";
  const std::size_t begin = ptx.find_first_not_of(" \t", at + 7);
  const std::size_t end = ptx.find_first_of(" \t\r\n,;", begin);
  return begin == std::string::npos ? "" : ptx.substr(begin, end - begin);
}

std::string choose(const uint8_t* container, const Device& device) {
  std::string best, why = "it has no PTX";
  uint32_t best_sm = 0;
  std::set<uint32_t> cubins;
  for (FatEntry& entry : read_fat_binary(container)) {
    if (entry.kind == FatEntry::kCubin) cubins.insert(entry.sm);
    if (entry.kind != FatEntry::kPtx) continue;
    const std::string target = target_of(entry.text);
    std::string why_not = why_not_on(device, target);
    if (!why_not.empty()) {
      if (best.empty()) why = why_not;
      continue;
    }
    // PTX for this very architecture ("sm_90a") before that for all later ones.
    const uint32_t rank = 2 * entry.sm + (target.back() == 'a' ? 1 : 0);
    if (best.empty() || rank > best_sm) {
      best = std::move(entry.text);
      best_sm = rank;
    }
  }
  if (!best.empty()) return best;
  std::string has;
  for (uint32_t sm : cubins) has += (has.empty() ? " for sm_" : ", sm_") + std::to_string(sm);
  fault("%s: %s%s%s. The emulator executes PTX; compile with "
        "`-gencode arch=compute_%d%d,code=compute_%d%d`, or `-arch=sm_%d%d`, which keeps the PTX",
        "the fat binary holds nothing for the device", why.c_str(),
        has.empty() ? "" : ", only machine code", has.c_str(), device.major, device.minor,
        device.major, device.minor, device.major, device.minor);
}

}  // namespace

std::string find_ptx(const void* image, const Device& device) {
  const auto* bytes = static_cast<const uint8_t*>(image);
  const auto* text = static_cast<const char*>(image);
  if (std::strncmp(text, kElf, 4) == 0) {
    fault("the emulator executes PTX, and this module is a cubin, which has machine code only; give "
          "the driver PTX, or compile with the emulator enabled");
  }
  // Text may be shorter than a magic number.
  if (std::strlen(text) < 4 && bytes[0] < 0x80) return text;
  const uint32_t magic = magic_of(image);
  if (magic == kFatBinary) return choose(bytes, device);
  if (magic != kFatWrapper) return text;
  std::vector<std::string> parts;
  for (const uint8_t* container : containers_of_wrapper(bytes)) {
    parts.push_back(choose(container, device));
  }
  return join_ptx(parts);
}

bool is_whole(std::string_view bytes) {
  if (bytes.size() >= 16 && magic_of(bytes.data()) == kFatBinary) {
    return fat_binary_bytes(reinterpret_cast<const uint8_t*>(bytes.data())) <= bytes.size();
  }
  return bytes.substr(0, 4) == kElf || bytes.find('\0') != std::string_view::npos;
}

std::vector<std::string_view> fat_binaries_of(std::string_view elf) {
  std::vector<std::string_view> found;
  const uint32_t magic = kFatBinary;
  const std::string_view mark(reinterpret_cast<const char*>(&magic), sizeof(magic));
  for (std::size_t at = elf.find(mark); at != std::string_view::npos;) {
    const std::string_view rest = elf.substr(at);
    // Containers are aligned to 8 bytes; anything else is a constant in code.
    std::size_t size = 0;
    if (at % 8 == 0 && rest.size() >= 16) {
      size = fat_binary_bytes(reinterpret_cast<const uint8_t*>(rest.data()));
    }
    const bool is_one = size > 16 && size <= rest.size();
    if (is_one) found.push_back(rest.substr(0, size));
    at = elf.find(mark, at + (is_one ? size : 4));
  }
  return found;
}

std::string join_ptx(const std::vector<std::string>& texts) {
  if (texts.empty()) fault("there is no PTX to link");
  std::string all = texts.front();
  for (std::size_t i = 1; i < texts.size(); ++i) {
    const std::string& text = texts[i];
    // What follows the last of .version, .target and .address_size.
    std::size_t begin = 0;
    for (const char* word : {".version", ".target", ".address_size"}) {
      const std::size_t at = text.find(word);
      if (at != std::string::npos) begin = std::max(begin, text.find('\n', at));
    }
    all += "\n" + text.substr(std::min(begin, text.size()));
  }
  return all;
}

}  // namespace warploom::emulator::image
