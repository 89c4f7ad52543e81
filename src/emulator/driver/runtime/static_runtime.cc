// Programs that contain the runtime library, as nvcc links it by default, get the emulator's in its
// place: the first instructions of each function of it are replaced by a jump to the function of the
// same name here. Functions are found by the symbols of the file, so that one that was stripped
// stays as it is.

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/driver/cuda_abi.h"

// Their types are not needed here: programs know them.
extern "C" {
#define SERVED(name) int name();
#define REFUSED(name) int name();
#include "emulator/driver/runtime/function_table.h"
#undef SERVED
#undef REFUSED
}

namespace {

const std::map<std::string_view, void*>& own_functions() {
#define SERVED(name) {#name, reinterpret_cast<void*>(&name)},
#define REFUSED(name) {#name, reinterpret_cast<void*>(&name)},
  static const auto* functions = new std::map<std::string_view, void*>{
#include "emulator/driver/runtime/function_table.h"
  };
#undef SERVED
#undef REFUSED
  return *functions;
}

// A file in memory, read only; empty if it cannot be read.
class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat facts{};
    if (file < 0) return;
    if (fstat(file, &facts) == 0 && facts.st_size > 0) {
      bytes_ = static_cast<std::size_t>(facts.st_size);
      begin_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
      if (begin_ == MAP_FAILED) bytes_ = 0;
    }
    close(file);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (bytes_ != 0) munmap(begin_, bytes_);
  }
  // nullptr if the file does not hold so many of them there.
  template <class T>
  const T* at(std::size_t offset, std::size_t count = 1) const {
    if (offset > bytes_ || count > (bytes_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(static_cast<const char*>(begin_) + offset);
  }

 private:
  void* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

#if defined(__x86_64__)
// jmp *0(%rip), and the address behind it.
constexpr unsigned char kJump[] = {0xff, 0x25, 0, 0, 0, 0};
#elif defined(__aarch64__)
// ldr x16, #8; br x16, and the address behind it.
constexpr unsigned char kJump[] = {0x50, 0, 0, 0x58, 0, 2, 0x1f, 0xd6};
#else
constexpr unsigned char kJump[1] = {};
#endif
constexpr std::size_t kJumpBytes = sizeof(kJump) + sizeof(void*);

void replace(void* place, void* by) {
  if (sizeof(kJump) == 1) return;  // the processor is none that is known here
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(place) / page * page;
  const uintptr_t bytes = reinterpret_cast<uintptr_t>(place) + kJumpBytes - begin;
  auto* pages = reinterpret_cast<void*>(begin);
  if (mprotect(pages, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return;
  std::memcpy(place, kJump, sizeof(kJump));
  std::memcpy(static_cast<char*>(place) + sizeof(kJump), &by, sizeof(by));
  mprotect(pages, bytes, PROT_READ | PROT_EXEC);
  __builtin___clear_cache(static_cast<char*>(place), static_cast<char*>(place) + kJumpBytes);
}

struct Found {
  std::string_view name;
  uintptr_t at;
};

// The functions of the runtime library that a file defines.
std::vector<Found> functions_of(const MappedFile& file) {
  std::vector<Found> found;
  const auto* header = file.at<ElfW(Ehdr)>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return found;
  const auto* sections = file.at<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
  for (std::size_t i = 0; sections != nullptr && i < header->e_shnum; ++i) {
    const ElfW(Shdr)& section = sections[i];
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= header->e_shnum) continue;
    const std::size_t count = section.sh_size / sizeof(ElfW(Sym));
    const auto* symbols = file.at<ElfW(Sym)>(section.sh_offset, count);
    const ElfW(Shdr)& text = sections[section.sh_link];
    const char* names = file.at<char>(text.sh_offset, text.sh_size);
    if (symbols == nullptr || names == nullptr || text.sh_size == 0) continue;
    for (std::size_t s = 0; s < count; ++s) {
      const ElfW(Sym)& symbol = symbols[s];
      const bool is_function = (symbol.st_info & 15) == STT_FUNC && symbol.st_shndx != SHN_UNDEF &&
                               symbol.st_size >= kJumpBytes && symbol.st_name < text.sh_size;
      if (!is_function) continue;
      const std::string_view name(names + symbol.st_name);
      if (name.substr(0, 4) == "cuda" || name.substr(0, 6) == "__cuda") {
        found.push_back({name, symbol.st_value});
      }
    }
  }
  return found;
}

// Whether a file contains the library, and does not only have a function of such a name.
bool contains_runtime(const std::vector<Found>& functions) {
  std::set<std::string_view> names;
  for (const Found& function : functions) names.insert(function.name);
  return names.count("cudaGetDeviceCount") != 0 && names.count("cudaMalloc") != 0 &&
         names.count("cudaGetLastError") != 0;
}

int visit(dl_phdr_info* object, std::size_t, void* count) {
  static auto* visited = new std::set<std::string>;
  const bool is_program = object->dlpi_name == nullptr || object->dlpi_name[0] == 0;
  const std::string path = is_program ? "/proc/self/exe" : object->dlpi_name;
  // The real library and this one are files of their own, with names that are looked up.
  if (path.find("cudart") != std::string::npos || !visited->insert(path).second) return 0;
  const MappedFile file(path.c_str());  // where the names lie
  const std::vector<Found> functions = functions_of(file);
  if (!contains_runtime(functions)) return 0;
  for (const Found& function : functions) {
    const auto own = own_functions().find(function.name);
    if (own == own_functions().end()) continue;
    replace(reinterpret_cast<void*>(object->dlpi_addr + function.at), own->second);
    ++*static_cast<int*>(count);
  }
  return 0;
}

}  // namespace

// Does so for all files that are loaded by now, and returns how many functions were replaced.
WARPLOOM_CUDA_API int cuda_warploom_replace_static_runtimes() {
  int count = 0;
  dl_iterate_phdr(visit, &count);
  return count;
}

namespace {

// Before the program's own constructors, which register its kernels.
__attribute__((constructor)) void replace_in_program() {
  const char* wanted = std::getenv("WARPLOOM_EMULATOR_STATIC");
  if (wanted != nullptr && std::strcmp(wanted, "1") == 0) cuda_warploom_replace_static_runtimes();
}

}  // namespace
