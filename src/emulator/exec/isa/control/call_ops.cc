#include <cstdint>
#include <string>
#include <vector>

#include "emulator/exec/isa/control/families.h"
#include "emulator/exec/isa/control/system_call.h"
#include "emulator/exec/isa/decoder.h"
#include "emulator/exec/machine/call_form.h"

namespace warploom::emulator {
namespace {

using ptx::Operand;

Passed take_passed(const Decoder& decoder, const Operand& operand) {
  Passed passed;
  if (operand.kind == Operand::kVariable) {
    if (operand.variable->space != ptx::Space::kLocal) {
      decoder.fail("'" + operand.variable->name + "' is not a .param variable");
    }
    passed.in_memory = true;
    passed.value = decoder.special(operand, false);
    passed.bytes = static_cast<uint32_t>(operand.variable->bytes);
  } else {
    if (operand.kind != Operand::kRegister) decoder.fail("what it passes is not a variable");
    passed.value = decoder.destination(operand, 0);
    Type type = decoder.function().registers[static_cast<std::size_t>(operand.index)];
    passed.bytes = static_cast<uint32_t>(type_bits(type)) / 8;
    if (passed.bytes == 0 || passed.bytes > 8) {
      decoder.fail("registers of 8 to 64 bits can be passed");
    }
  }
  return passed;
}

std::vector<uint32_t> formal_sizes(const std::vector<ptx::Formal>& formals) {
  std::vector<uint32_t> result;
  for (const ptx::Formal& formal : formals) {
    result.push_back(formal.variable != nullptr
                         ? static_cast<uint32_t>(formal.variable->bytes)
                         : static_cast<uint32_t>(type_bits(formal.type)) / 8);
  }
  return result;
}

void decode_call(Decoder& decoder) {
  decoder.modifiers.take("uni");
  CallForm form;
  for (const Operand& operand : decoder.operand(1).elements) {
    form.outputs.push_back(take_passed(decoder, operand));
  }
  for (const Operand& operand : decoder.operand(2).elements) {
    form.inputs.push_back(take_passed(decoder, operand));
  }
  const Operand& callee = decoder.operand(0);
  decoder.op.flow = Flow::kCall;
  std::string why;
  if (callee.kind == Operand::kRegister) {
    decoder.op.s[0] = decoder.source(callee, Type::kU64);
  } else if (const SystemCall* system = find_system_call(callee.name)) {
    why = mismatch(form, system->inputs, system->outputs);
    decoder.op.flow = Flow::kStraight;
    decoder.op.run = system->run;
  } else {
    const Program& program = decoder.program();
    int index = program.module->find_function(callee.name);
    if (index < 0) decoder.fail("the function '" + callee.name + "' has no body");
    form.callee = program.find_function(index);
    if (form.callee <= 0) decoder.fail("'" + callee.name + "' is an entry, which cannot be called");
    const ptx::Function& source = *program.functions[static_cast<std::size_t>(form.callee)].source;
    why = mismatch(form, formal_sizes(source.inputs), formal_sizes(source.outputs));
  }
  if (!why.empty()) decoder.fail(why);
  decoder.form(form);
}

}  // namespace

void add_call_ops(DecodeTable& table) { table["call"] = decode_call; }

}  // namespace warploom::emulator
