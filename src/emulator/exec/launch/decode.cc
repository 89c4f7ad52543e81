#include "emulator/exec/launch/decode.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "emulator/base/fault.h"
#include "emulator/check/accumulator_watch.h"
#include "emulator/exec/isa/arithmetic/families.h"
#include "emulator/exec/isa/control/families.h"
#include "emulator/exec/isa/movement/families.h"
#include "emulator/exec/isa/tensor_core/families.h"
#include "emulator/exec/isa/decoder.h"
#include "emulator/ptx/effects.h"
#include "emulator/ptx/flow.h"

namespace warploom::emulator {
namespace {

DecodeTable make_table() {
  DecodeTable table;
  add_integer_ops(table);
  add_bit_ops(table);
  add_logic_ops(table);
  add_bit_field_ops(table);
  add_dot_product_ops(table);
  add_float_ops(table);
  add_half_ops(table);
  add_mixed_ops(table);
  add_packed_ops(table);
  add_carry_ops(table);
  add_compare_ops(table);
  add_compare_half_ops(table);
  add_move_ops(table);
  add_convert_ops(table);
  add_convert_scale_ops(table);
  add_convert_pack_ops(table);
  add_convert_stochastic_ops(table);
  add_load_store_ops(table);
  add_wide_ops(table);
  add_async_store_ops(table);
  add_atomic_ops(table);
  add_control_ops(table);
  add_call_ops(table);
  add_launch_control_ops(table);
  add_warp_ops(table);
  add_barrier_ops(table);
  add_mbarrier_ops(table);
  add_copy_ops(table);
  add_tensor_map_ops(table);
  add_matrix_ops(table);
  add_mma_ops(table);
  add_wmma_ops(table);
  add_wgmma_ops(table);
  add_tcgen05_ops(table);
  return table;
}

// Names under which the table may have an instruction, the most special first (exec/isa/decoder.h).
std::vector<std::string> table_names(const ptx::Instruction& instruction) {
  const std::string& opcode = instruction.opcode;
  const std::vector<std::string>& modifiers = instruction.modifiers;
  std::vector<std::string> names;
  auto has = [&](const char* modifier) {
    return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
  };
  for (const char* telling : {"cc", "ue8m0x2"}) {
    if (has(telling)) names.push_back(opcode + "." + telling);
  }
  if (!modifiers.empty()) names.push_back(opcode + "." + modifiers.front());
  Type type = last_type(instruction);
  if (type == Type::kF32 || type == Type::kF64) {
    names.push_back(opcode + ":f");
  } else if (type == Type::kF32x2 || type == Type::kB128) {
    names.push_back(opcode + ":" + std::string(type_name(type)));
  } else if (is_float(type)) {
    if (has("f32")) names.push_back(opcode + ":mixed");
    names.push_back(opcode + ":h");
  }
  names.push_back(opcode);
  return names;
}

DecodeFunction find(const DecodeTable& table, const ptx::Instruction& instruction) {
  for (const std::string& name : table_names(instruction)) {
    auto entry = table.find(name);
    if (entry != table.end()) return entry->second;
  }
  fault("line %d: the instruction '%s' is not supported", instruction.line,
        instruction.text.c_str());
}

// Appends the code of a function; targets become those of the program.
void decode_function(const DecodeTable& table, Program& program, Values& values,
                     ProgramFunction& function) {
  const ptx::Function& source = *function.source;
  std::vector<int> joins = ptx::reconvergence_points(source);
  auto base = static_cast<int32_t>(program.ops.size());
  program.ops.resize(program.ops.size() + source.code.size());
  function.entry = base;
  values.enter(function);
  for (const auto& [formals, passed] : {std::make_pair(&source.inputs, &function.inputs),
                                        std::make_pair(&source.outputs, &function.outputs)}) {
    for (const ptx::Formal& formal : *formals) passed->push_back(values.formal(formal));
  }
  for (std::size_t i = 0; i < source.code.size(); ++i) {
    const ptx::Instruction& instruction = source.code[i];
    DecodeFunction decode_one = find(table, instruction);
    Op& op = program.ops[static_cast<std::size_t>(base) + i];
    std::size_t tables = program.tables.size();
    Decoder decoder(program, values, function, instruction, op);
    decode_one(decoder);
    decoder.modifiers.finish();
    bool runs = op.flow == Flow::kStraight || op.flow == Flow::kSync;
    if (runs && op.run == nullptr) decoder.fail("its type is not supported");
    if (op.target >= 0) op.target += base;
    for (; tables < program.tables.size(); ++tables) program.tables[tables] += base;
    op.join = joins[i] < 0 ? -1 : joins[i] + base;
    Effects effects = effects_of(instruction);
    op.synchronises = effects.synchronises;
    op.changes_state = effects.changes_state;
    program.couples_clusters |= effects.couples_clusters;
    program.sums_in_any_order |= effects.sums_in_any_order;
  }
}

// Whether lanes can execute one *.sync instruction from several places.
bool may_meet(const Program& program) {
  return std::count_if(program.ops.begin(), program.ops.end(),
                       [](const Op& op) { return op.members.present(); }) > 1;
}

}  // namespace

std::unique_ptr<Program> decode(const ptx::Module& module, CallGraph& calls,
                                const ptx::Function& function) {
  static const DecodeTable table = make_table();
  auto program = std::make_unique<Program>();
  program->module = &module;
  program->function = &function;
  program->functions = calls.reachable(function);
  for (std::size_t i = 0; i < program->functions.size(); ++i) {
    program->positions[program->functions[i].index] = static_cast<int>(i);
  }
  Values values(*program);
  for (ProgramFunction& part : program->functions) {
    decode_function(table, *program, values, part);
    program->dynamic_alignment =
        std::max(program->dynamic_alignment, part.source->dynamic_alignment);
  }
  if (may_meet(*program)) program->meeting = values.meeting_place();
  program->static_shared = static_cast<uint32_t>(function.shared_bytes);
  watch_accumulators(*program);
  return program;
}

}  // namespace warploom::emulator
