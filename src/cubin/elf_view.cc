/*!
 * \file elf_view.cc
 * \brief Decodes the section headers and the symbol table of an ELF64 image.
 */
#include "elf_view.h"

namespace warploom {
namespace cubin {

namespace {

constexpr uint64_t kHeaderSize = 64;
constexpr uint64_t kSectionHeaderSize = 64;
constexpr uint64_t kSymbolSize = 24;
// Magic, 64 bit, little endian, ELF version 1.
constexpr std::string_view kIdent("\x7f" "ELF\x02\x01\x01", 7);

std::vector<Section> ReadSections(const Bytes& image) {
  uint64_t table_offset = image.Read<uint64_t>(40);
  uint64_t header_size = image.Read<uint16_t>(58);
  uint64_t count = image.Read<uint16_t>(60);
  uint64_t names_index = image.Read<uint16_t>(62);
  if (header_size != kSectionHeaderSize) image.Fail(58, "section headers of an unknown size");
  if (names_index >= count) image.Fail(62, "a name table that is not one of its sections");
  Bytes table = image.Slice(table_offset, count * kSectionHeaderSize, "the section header table");

  auto field = [&](uint64_t index, uint64_t offset) { return index * kSectionHeaderSize + offset; };
  Bytes names = image.Slice(table.Read<uint64_t>(field(names_index, 24)),
                            table.Read<uint64_t>(field(names_index, 32)), "the section name table");
  std::vector<Section> sections;
  for (uint64_t i = 0; i < count; ++i) {
    sections.push_back({names.String(table.Read<uint32_t>(field(i, 0))),
                        table.Read<uint32_t>(field(i, 4)), table.Read<uint64_t>(field(i, 24)),
                        table.Read<uint64_t>(field(i, 32)), table.Read<uint32_t>(field(i, 40))});
  }
  return sections;
}

}  // namespace

std::string Printable(std::string_view name) {
  std::string result(name);
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return result;
}

ElfView::ElfView(std::string_view image) : image_(image, "the file") {
  if (image.size() < kHeaderSize || image.substr(0, kIdent.size()) != kIdent) {
    throw CubinError("malformed cubin: the file is not a 64-bit little-endian ELF image.");
  }
  sections_ = ReadSections(image_);
  for (const Section& section : sections_) {
    if (section.type != kSectionSymbols) continue;
    if (section.link >= sections_.size()) {
      image_.Fail(section.offset, "a symbol table without names");
    }
    Bytes table = Content(section);
    Bytes names = Content(sections_[section.link]);
    for (uint64_t at = 0; at < table.size(); at += kSymbolSize) {
      symbols_.push_back({names.String(table.Read<uint32_t>(at)),
                          static_cast<uint8_t>(table.Read<uint8_t>(at + 4) & 0xf),
                          table.Read<uint8_t>(at + 5), table.Read<uint16_t>(at + 6)});
    }
    break;  // nv.info refers to symbols by index into the one table that a cubin has
  }
}

const Section* ElfView::Find(std::string_view name) const {
  for (const Section& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

Bytes ElfView::Content(const Section& section) const {
  uint64_t size = section.type == kSectionNoBits ? 0 : section.size;
  return image_.Slice(size ? section.offset : 0, size, "section " + Printable(section.name));
}

}  // namespace cubin
}  // namespace warploom
