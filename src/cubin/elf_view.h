/*!
 * \file elf_view.h
 * \brief A bounds-checked, read-only view of a 64-bit little-endian ELF image.
 *
 * Every read goes through Bytes, which throws CubinError instead of leaving the image, so that the
 * code above it can follow offsets of a damaged file without checks of its own.
 */
#ifndef WARPLOOM_CUBIN_ELF_VIEW_H_
#define WARPLOOM_CUBIN_ELF_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace warploom {
namespace cubin {

/*! \brief A file that is not a well-formed cubin; the message says where it breaks. */
class CubinError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/*! \brief A piece of the image that knows its own name for error messages. */
class Bytes {
 public:
  Bytes(std::string_view data, std::string name) : data_(data), name_(std::move(name)) {}

  uint64_t size() const { return data_.size(); }
  const std::string& name() const { return name_; }

  /*! \brief The little-endian T at `offset`. */
  template <typename T>
  T Read(uint64_t offset) const {
    T value;
    std::memcpy(&value, Cut(offset, sizeof(T)).data(), sizeof(T));
    return value;
  }

  /*! \brief `size` bytes at `offset`, under a name of their own. */
  Bytes Slice(uint64_t offset, uint64_t size, std::string name) const {
    return Bytes(Cut(offset, size), std::move(name));
  }

  /*! \brief The NUL-terminated string at `offset`. */
  std::string_view String(uint64_t offset) const {
    std::string_view rest = Cut(offset, 0, /*to_end=*/true);
    size_t end = rest.find('\0');
    if (end == std::string_view::npos) Fail(offset, "a string that is not terminated");
    return rest.substr(0, end);
  }

  [[noreturn]] void Fail(uint64_t offset, const std::string& what) const {
    throw CubinError("malformed cubin: " + name_ + " has " + what + " at byte " +
                     std::to_string(offset) + " of " + std::to_string(data_.size()) + ".");
  }

 private:
  std::string_view Cut(uint64_t offset, uint64_t size, bool to_end = false) const {
    // Two comparisons, because offset + size may wrap around in a corrupted file.
    if (offset > data_.size() || size > data_.size() - offset) {
      Fail(offset, "an entry of " + std::to_string(size) + " bytes that lies outside");
    }
    return to_end ? data_.substr(offset) : data_.substr(offset, size);
  }

  std::string_view data_;
  std::string name_;
};

constexpr uint32_t kSectionSymbols = 2;  // SHT_SYMTAB
constexpr uint32_t kSectionNoBits = 8;   // SHT_NOBITS: has a size but no bytes in the file

/*! \brief `name` with a question mark for each character that is not printable ASCII. */
std::string Printable(std::string_view name);

// Names are views into the image: a damaged name table must not multiply the memory in use.
struct Section {
  std::string_view name;
  uint32_t type;
  uint64_t offset;
  uint64_t size;
  uint32_t link;
};

struct Symbol {
  std::string_view name;
  uint8_t type;
  uint8_t other;
  uint16_t section;
};

/*! \brief Sections and symbols of an image, decoded once. The image must outlive the view. */
class ElfView {
 public:
  explicit ElfView(std::string_view image);

  const Bytes& image() const { return image_; }
  const std::vector<Section>& sections() const { return sections_; }
  const std::vector<Symbol>& symbols() const { return symbols_; }

  /*! \brief The section called `name`, or nullptr. */
  const Section* Find(std::string_view name) const;

  /*! \brief The bytes of a section; empty for one that occupies no bytes. */
  Bytes Content(const Section& section) const;

 private:
  Bytes image_;
  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
};

}  // namespace cubin
}  // namespace warploom

#endif  // WARPLOOM_CUBIN_ELF_VIEW_H_
