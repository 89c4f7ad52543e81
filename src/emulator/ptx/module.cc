#include "emulator/ptx/module.h"

#include <cstddef>

#include "emulator/ptx/source_text.h"

namespace warploom::emulator::ptx {
namespace {

std::string describe(const Module& module, SourceLine line) {
  auto file = module.files.find(line.file);
  std::string name = file != module.files.end() ? file->second : "source";
  return name + ":" + std::to_string(line.line);
}

}  // namespace

int Module::find_function(const std::string& name) const {
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (functions[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::string describe_origin(const Module& module, const Instruction& instruction) {
  const SourceLine& inner = instruction.origin;
  const SourceLine& outer = instruction.outer_origin;
  if (!inner.known()) return "";
  const SourceText* text = find_source_text(module, outer.known() ? outer : inner);
  // Who wrote the script knows its line; what was generated from it only takes room then.
  if (text != nullptr && !text->script.empty()) {
    return describe(module, outer.known() ? outer : inner) + ", script " + text->script;
  }
  std::string result = describe(module, inner);
  if (outer.known() && (outer.file != inner.file || outer.line != inner.line)) {
    result += ", inlined at " + describe(module, outer);
  }
  if (text != nullptr && !text->cuda.empty()) result += " '" + text->cuda + "'";
  return result;
}

}  // namespace warploom::emulator::ptx
