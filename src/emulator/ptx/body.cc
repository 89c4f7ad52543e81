#include "emulator/ptx/body.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/base/fault.h"
#include "emulator/ptx/limits.h"
#include "emulator/ptx/line_info.h"
#include "emulator/ptx/operand.h"
#include "emulator/ptx/scopes.h"

namespace warploom::emulator::ptx {
namespace {

class Body {
 public:
  Body(Cursor& cursor, const Names& globals, const Names& formals, Module& module,
       Function& function)
      : cursor_(cursor),
        module_(module),
        function_(function),
        scopes_(globals, formals),
        operands_(cursor, scopes_, function) {
    for (const auto* list : {&function.inputs, &function.outputs}) {
      for (const Formal& formal : *list) {
        if (formal.register_index < 0) continue;
        scopes_.declare_registers(formal.name, formal.register_index, 0, function.line);
      }
    }
  }

  void run() {
    cursor_.expect('{');
    scopes_.enter(cursor_.line());
    while (!scopes_.is_outermost()) statement();
    Instruction end;
    end.line = cursor_.peek().line;
    end.text = end.opcode = "ret";
    function_.code.push_back(end);
    resolve_targets();
  }

 private:
  void statement() {
    const Token& token = cursor_.peek();
    if (cursor_.accept('{')) {
      scopes_.enter(cursor_.line());
    } else if (cursor_.accept('}')) {
      scopes_.leave();
    } else if (cursor_.accept(';')) {
      return;
    } else if (token.kind == Token::kWord && cursor_.peek(1).is(':')) {
      label();
    } else if (token.is(".loc")) {
      lines_.parse_location(cursor_);
    } else if (token.is(".file")) {
      parse_file(cursor_, module_);
    } else if (token.is(".pragma")) {
      while (!cursor_.next().is(';')) {
      }
    } else if (token.is(".reg")) {
      registers();
    } else if (token.kind == Token::kWord && token.text[0] == '.') {
      variables();
    } else {
      instruction();
    }
  }

  void label() {
    int line = cursor_.line();
    std::string name(cursor_.word());
    cursor_.expect(':');
    if (cursor_.peek().is(".branchtargets")) {
      cursor_.next();
      auto [table, is_new] = function_.branch_tables.try_emplace(name);
      if (!is_new) fault("line %d: the table '%s' is declared twice", line, name.c_str());
      do {
        table->second.emplace_back(cursor_.word());
      } while (cursor_.accept(','));
      cursor_.expect(';');
      return;
    }
    if (cursor_.peek().is(".callprototype") || cursor_.peek().is(".calltargets")) {
      // Callees are checked when they are called: what a pointer refers to is known only then.
      while (!cursor_.next().is(';')) {
      }
      return;
    }
    scopes_.declare_label(name, static_cast<int>(function_.code.size()), line);
  }

  void registers() {
    cursor_.next();
    std::string_view word = cursor_.word();
    Type type = parse_type(word.substr(1));
    if (type == Type::kNone) {
      fault("line %d: registers of type '%s' are not known", cursor_.line(), shown(word).c_str());
    }
    do {
      int line = cursor_.line();
      std::string name(cursor_.word());
      int count = 0;
      if (cursor_.accept('<')) {
        count = static_cast<int>(
            cursor_.number_within("registers", 1, kMostFunctionRegisters));
        cursor_.expect('>');
      }
      int first = add_registers(static_cast<uint32_t>(std::max(count, 1)), type, name, line);
      scopes_.declare_registers(name, first, count, line);
    } while (cursor_.accept(','));
    cursor_.expect(';');
  }

  // Returns the index of the first.
  int add_registers(uint32_t count, Type type, const std::string& name, int line) {
    std::vector<Type>& registers = function_.registers;
    std::size_t first = registers.size();
    if (count > kMostFunctionRegisters - first) {
      fault("line %d: with '%s' (%u registers) the function has %zu; at most %u are allowed", line,
            name.c_str(), count, first + count, kMostFunctionRegisters);
    }
    module_.registers += count;
    if (module_.registers > kMostModuleRegisters) {
      fault("line %d: with '%s' (%u registers) the module has %llu; at most %llu are allowed", line,
            name.c_str(), count, static_cast<unsigned long long>(module_.registers),
            static_cast<unsigned long long>(kMostModuleRegisters));
    }
    registers.insert(registers.end(), count, type);
    return static_cast<int>(first);
  }

  void variables() {
    for (auto& variable : parse_variables(cursor_)) {
      if (variable->space == Space::kShared) {
        share(*variable);
      } else if (variable->space == Space::kLocal || variable->space == Space::kParam) {
        variable->space = Space::kLocal;
        place(*variable, function_.local_bytes, kLocalSpace);
      } else {
        place(*variable, module_.global_bytes, kGlobalSpace);
        module_.globals.push_back(variable.get());
      }
      scopes_.declare_variable(*variable);
      module_.variables.push_back(std::move(variable));
    }
  }

  // Each entry has its own static shared variables; those of device functions exist once.
  void share(Variable& variable) {
    if (function_.is_entry) {
      function_.shared.push_back(&variable);
    } else {
      place(variable, module_.shared_bytes, kSharedSpace);
    }
  }

  void instruction() {
    Instruction result;
    result.line = cursor_.line();
    result.origin = lines_.origin();
    result.outer_origin = lines_.outer_origin();
    if (cursor_.accept('@')) {
      result.guard_negated = cursor_.accept('!');
      result.guard = scopes_.find_register(cursor_.word());
      if (result.guard < 0) fault("line %d: the guard is not a register", result.line);
    }
    result.text = std::string(cursor_.word());
    split(result);
    if (result.opcode == "call") {
      call(result);
    } else if (!cursor_.peek().is(';')) {
      do {
        result.operands.push_back(operands_.parse());
      } while (cursor_.accept(','));
    }
    cursor_.expect(';');
    if (result.opcode == "bra" || result.opcode == "brx") {
      jumps_.push_back({function_.code.size(), scopes_.current()});
    }
    function_.code.push_back(std::move(result));
  }

  // "call (result), callee, (argument, ...), prototype;": the parts in parentheses may be missing.
  void call(Instruction& result) {
    Operand outputs, inputs;
    bool has_outputs = cursor_.peek().is('(');
    if (has_outputs) {
      outputs = list();
      cursor_.expect(',');
    }
    result.operands.push_back(operands_.parse());
    if (cursor_.accept(',')) {
      if (cursor_.peek().is('(')) {
        inputs = list();
        if (cursor_.accept(',')) cursor_.word();  // the prototype, or the list of callees
      } else {
        cursor_.word();
      }
    }
    outputs.kind = inputs.kind = Operand::kVector;
    result.operands.push_back(std::move(outputs));
    result.operands.push_back(std::move(inputs));
  }

  Operand list() {
    Operand result;
    cursor_.expect('(');
    while (!cursor_.accept(')')) {
      result.elements.push_back(operands_.parse());
      cursor_.accept(',');
    }
    return result;
  }

  static void split(Instruction& instruction) {
    std::string_view text = instruction.text;
    std::size_t dot = text.find('.');
    instruction.opcode = std::string(text.substr(0, dot));
    while (dot != std::string_view::npos) {
      std::size_t end = text.find('.', dot + 1);
      instruction.modifiers.emplace_back(text.substr(dot + 1, end - dot - 1));
      dot = end;
    }
  }

  void resolve_targets() {
    uint64_t targets = 0;
    for (auto [index, scope] : jumps_) {
      Instruction& jump = function_.code[index];
      if (jump.operands.empty() || jump.operands.back().kind != Operand::kName) {
        fault("line %d: '%s' has no label", jump.line, jump.text.c_str());
      }
      const std::string& name = jump.operands.back().name;
      if (jump.opcode == "bra") {
        jump.targets.push_back(scopes_.find_label(name, scope, jump.line));
        continue;
      }
      auto table = function_.branch_tables.find(name);
      if (table == function_.branch_tables.end()) {
        fault("line %d: there is no table '%s'", jump.line, name.c_str());
      }
      targets += table->second.size();
      if (targets > kMostTargets) {
        fault("line %d: with the table '%s' of %zu labels the brx.idx of the function have %llu "
              "targets; at most %llu are allowed",
              jump.line, name.c_str(), table->second.size(),
              static_cast<unsigned long long>(targets),
              static_cast<unsigned long long>(kMostTargets));
      }
      for (const std::string& label : table->second) {
        jump.targets.push_back(scopes_.find_label(label, scope, jump.line));
      }
    }
  }

  struct Jump {
    std::size_t index;
    int scope;
  };

  Cursor& cursor_;
  Module& module_;
  Function& function_;
  Scopes scopes_;
  OperandParser operands_;
  std::vector<Jump> jumps_;
  LineInfo lines_;
};

}  // namespace

void parse_body(Cursor& cursor, const Names& globals, const Names& formals, Module& module,
                Function& function) {
  Body(cursor, globals, formals, module, function).run();
}

}  // namespace warploom::emulator::ptx
