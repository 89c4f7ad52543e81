#include "emulator/ptx/source_text.h"

#include <cstddef>
#include <cstdlib>

namespace warploom::emulator::ptx {
namespace {

// The name that TVM gives the source it generates.
constexpr std::string_view kGenerated = "tvm_kernels.cu";

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// "37 text" -> 37 and "text"; 0 if there is no number.
int take_number(std::string& text) {
  char* end = nullptr;
  long number = std::strtol(text.c_str(), &end, 10);
  bool good = end != text.c_str() && *end == ' ' && number > 0 && number < (1 << 30);
  if (!good) return 0;
  text.erase(0, static_cast<std::size_t>(end - text.c_str()) + 1);
  return static_cast<int>(number);
}

}  // namespace

void read_source_text(std::string_view ptx, Module& module) {
  constexpr std::string_view kCuda = "//@cuda ";
  constexpr std::string_view kScript = "//@script ";
  std::size_t begin = 0;
  while ((begin = ptx.find("\n//@", begin)) != std::string_view::npos) {
    ++begin;
    std::size_t end = ptx.find('\n', begin);
    std::string_view line = ptx.substr(begin, end == std::string_view::npos ? end : end - begin);
    bool is_script = line.substr(0, kScript.size()) == kScript;
    if (!is_script && line.substr(0, kCuda.size()) != kCuda) continue;
    std::string text(line.substr((is_script ? kScript : kCuda).size()));
    if (int number = take_number(text); number != 0) {
      SourceText& entry = module.source[number];
      (is_script ? entry.script : entry.cuda) = text;
    }
  }
}

const SourceText* find_source_text(const Module& module, SourceLine line) {
  auto file = module.files.find(line.file);
  if (file == module.files.end() || !ends_with(file->second, kGenerated)) return nullptr;
  auto entry = module.source.find(line.line);
  return entry == module.source.end() ? nullptr : &entry->second;
}

}  // namespace warploom::emulator::ptx
