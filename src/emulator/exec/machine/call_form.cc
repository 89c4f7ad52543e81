#include "emulator/exec/machine/call_form.h"

#include <cstddef>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

std::string mismatch(const char* what, const std::vector<Passed>& passed,
                     const std::vector<uint32_t>& expected) {
  if (passed.size() != expected.size()) {
    return format("it passes %zu %s and the function has %zu", passed.size(), what,
                  expected.size());
  }
  for (std::size_t i = 0; i < passed.size(); ++i) {
    if (passed[i].bytes != expected[i]) {
      return format("%s %zu have %u bytes and those of the function %u", what, i + 1,
                    passed[i].bytes, expected[i]);
    }
  }
  return "";
}

}  // namespace

std::string mismatch(const CallForm& form, const std::vector<uint32_t>& inputs,
                     const std::vector<uint32_t>& outputs) {
  std::string why = mismatch("arguments", form.inputs, inputs);
  return why.empty() ? mismatch("results", form.outputs, outputs) : why;
}

}  // namespace warploom::emulator
