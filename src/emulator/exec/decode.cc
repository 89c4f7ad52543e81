#include "emulator/driver/device.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/exec/decoder.h"
#include "emulator/exec/fault.h"
#include "emulator/ptx/flow.h"

namespace warploom::emulator {
namespace {

DecodeTable make_table() {
  DecodeTable table;
  add_integer_ops(table);
  add_bit_ops(table);
  add_float_ops(table);
  add_half_ops(table);
  add_compare_ops(table);
  add_move_ops(table);
  add_convert_ops(table);
  add_load_store_ops(table);
  add_atomic_ops(table);
  add_control_ops(table);
  add_warp_ops(table);
  add_barrier_ops(table);
  add_mbarrier_ops(table);
  add_copy_ops(table);
  add_matrix_ops(table);
  add_wgmma_ops(table);
  return table;
}

DecodeFunction find(const DecodeTable& table, const ptx::Instruction& instruction) {
  Type type = last_type(instruction);
  bool wide = type == Type::kF32 || type == Type::kF64;
  if (is_float(type)) {
    auto entry = table.find(instruction.opcode + (wide ? ":f" : ":h"));
    if (entry != table.end()) return entry->second;
  }
  auto entry = table.find(instruction.opcode);
  if (entry == table.end()) {
    fault("line %d: the instruction '%s' is not supported", instruction.line,
          instruction.text.c_str());
  }
  return entry->second;
}

}  // namespace

std::unique_ptr<Program> decode(const ptx::Module& module, const ptx::Function& function) {
  static const DecodeTable table = make_table();
  auto program = std::make_unique<Program>();
  program->module = &module;
  program->function = &function;
  program->ops.resize(function.code.size());
  Values values(*program, function);
  std::vector<int> joins = ptx::reconvergence_points(function);
  for (std::size_t i = 0; i < function.code.size(); ++i) {
    const ptx::Instruction& instruction = function.code[i];
    DecodeFunction decode_one = find(table, instruction);
    Decoder decoder(*program, values, instruction, program->ops[i]);
    decode_one(decoder);
    decoder.modifiers.finish();
    const Op& op = program->ops[i];
    bool runs = op.flow == Flow::kStraight || op.flow == Flow::kSync;
    if (runs && op.run == nullptr) decoder.fail("its type is not supported");
    program->ops[i].join = joins[i];
  }
  if (function.shared_bytes > kSharedPerCta) {
    fault("function %s has %llu bytes of static shared memory; %u are allowed",
          function.name.c_str(), static_cast<unsigned long long>(function.shared_bytes),
          kSharedPerCta);
  }
  program->static_shared = static_cast<uint32_t>(function.shared_bytes);
  return program;
}

}  // namespace warploom::emulator
