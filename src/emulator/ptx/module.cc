#include "emulator/ptx/module.h"

#include <utility>

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
  auto entry = function_numbers.find(name);
  return entry != function_numbers.end() ? entry->second : -1;
}

void Module::add_function(Function function) {
  function_numbers[function.name] = static_cast<int>(functions.size());
  functions.push_back(std::move(function));
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
