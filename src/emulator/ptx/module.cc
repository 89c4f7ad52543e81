#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {
namespace {

std::string describe(const Module& module, SourceLine line) {
  auto file = module.files.find(line.file);
  std::string name = file != module.files.end() ? file->second : "source";
  return name + ":" + std::to_string(line.line);
}

}  // namespace

std::string describe_origin(const Module& module, const Instruction& instruction) {
  const SourceLine& inner = instruction.origin;
  const SourceLine& outer = instruction.outer_origin;
  if (!inner.known()) return "";
  std::string result = describe(module, inner);
  if (outer.known() && (outer.file != inner.file || outer.line != inner.line)) {
    result += ", inlined at " + describe(module, outer);
  }
  return result;
}

}  // namespace warploom::emulator::ptx
