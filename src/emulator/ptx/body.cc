#include "emulator/ptx/body.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/exec/fault.h"
#include "emulator/ptx/line_info.h"

namespace warploom::emulator::ptx {
namespace {

struct RegisterRange {
  int first = 0;
  int count = 0;  // 0: one register of exactly this name
};

// What a "{ ... }" declares; inline assembly reuses names, so that scopes matter.
struct Scope {
  int parent = -1;
  std::unordered_map<std::string, RegisterRange> registers;
  std::unordered_map<std::string, const Variable*> variables;
  std::unordered_map<std::string, int> labels;
};

class Body {
 public:
  Body(Cursor& cursor, const Names& names, Module& module, Function& function)
      : cursor_(cursor), module_(module), function_(function) {
    scopes_.emplace_back();
    for (const auto& [name, variable] : names) scopes_[0].variables[name] = variable;
    for (const auto* formals : {&function.inputs, &function.outputs}) {
      for (const Formal& formal : *formals) {
        if (formal.register_index < 0) continue;
        scopes_[0].registers[formal.name] = {formal.register_index, 0};
      }
    }
  }

  void run() {
    cursor_.expect('{');
    enter();
    while (scope_ != 0) statement();
    Instruction end;
    end.line = cursor_.peek().line;
    end.text = end.opcode = "ret";
    function_.code.push_back(end);
    resolve_targets();
  }

 private:
  void enter() {
    scopes_.emplace_back();
    scopes_.back().parent = scope_;
    scope_ = static_cast<int>(scopes_.size()) - 1;
  }

  void statement() {
    const Token& token = cursor_.peek();
    if (cursor_.accept('{')) {
      enter();
    } else if (cursor_.accept('}')) {
      scope_ = scopes_[static_cast<std::size_t>(scope_)].parent;
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
    std::string name(cursor_.word());
    cursor_.expect(':');
    if (cursor_.peek().is(".branchtargets")) {
      cursor_.next();
      std::vector<std::string>& table = function_.branch_tables[name];
      do {
        table.emplace_back(cursor_.word());
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
    current().labels[name] = static_cast<int>(function_.code.size());
  }

  void registers() {
    cursor_.next();
    std::string_view word = cursor_.word();
    Type type = parse_type(word.substr(1));
    if (type == Type::kNone) {
      fault("line %d: registers of type '%.*s' are not known", cursor_.line(),
            static_cast<int>(word.size()), word.data());
    }
    do {
      std::string name(cursor_.word());
      RegisterRange range{static_cast<int>(function_.registers.size()), 0};
      if (cursor_.accept('<')) {
        range.count = static_cast<int>(cursor_.unsigned_number());
        cursor_.expect('>');
      }
      int added = std::max(range.count, 1);
      if (added > kMostRegisters - range.first) {
        fault("line %d: a function has more than %d registers", cursor_.line(), kMostRegisters);
      }
      function_.registers.insert(function_.registers.end(), static_cast<std::size_t>(added), type);
      current().registers[name] = range;
    } while (cursor_.accept(','));
    cursor_.expect(';');
  }

  void variables() {
    for (auto& variable : parse_variables(cursor_)) {
      if (variable->space == Space::kShared) {
        share(*variable);
      } else if (variable->space == Space::kLocal || variable->space == Space::kParam) {
        variable->space = Space::kLocal;
        place(*variable, function_.local_bytes);
      } else {
        place(*variable, module_.global_bytes);
        module_.globals.push_back(variable.get());
      }
      current().variables[variable->name] = variable.get();
      module_.variables.push_back(std::move(variable));
    }
  }

  // Each entry has its own static shared variables; those of device functions exist once.
  void share(Variable& variable) {
    if (function_.is_entry) {
      function_.shared.push_back(&variable);
    } else {
      place(variable, module_.shared_bytes);
    }
  }

  void instruction() {
    Instruction result;
    result.line = cursor_.line();
    result.origin = lines_.origin();
    result.outer_origin = lines_.outer_origin();
    if (cursor_.accept('@')) {
      result.guard_negated = cursor_.accept('!');
      result.guard = find_register(cursor_.word());
      if (result.guard < 0) fault("line %d: the guard is not a register", result.line);
    }
    result.text = std::string(cursor_.word());
    split(result);
    if (result.opcode == "call") {
      call(result);
    } else if (!cursor_.peek().is(';')) {
      do {
        result.operands.push_back(operand());
      } while (cursor_.accept(','));
    }
    cursor_.expect(';');
    if (result.opcode == "bra" || result.opcode == "brx") {
      jumps_.push_back({function_.code.size(), scope_});
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
    result.operands.push_back(operand());
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
      result.elements.push_back(operand());
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

  // Vectors and addresses nest at most in each other.
  Operand operand(int depth = 0) {
    Operand result;
    const Token& token = cursor_.peek();
    if (depth > kMostNesting) cursor_.fail("a shorter operand");
    if (cursor_.accept('{')) {
      result.kind = Operand::kVector;
      do {
        result.elements.push_back(operand(depth + 1));
      } while (cursor_.accept(','));
      cursor_.expect('}');
    } else if (cursor_.accept('[')) {
      result = address(depth + 1);
    } else if (cursor_.accept('!')) {
      result = operand(depth + 1);
      result.negated = true;
    } else if (token.is('-') && cursor_.peek(1).kind == Token::kWord) {
      cursor_.next();
      result = operand(depth + 1);
      result.negated = true;
    } else if (token.is('-') || token.kind == Token::kNumber) {
      result = cursor_.literal();
    } else {
      result = name();
      if (cursor_.accept('|')) {
        Operand second = name();
        result.second = second.index;
      }
      if (cursor_.peek().is('+') && result.kind == Operand::kVariable) result.bits = offset();
    }
    return result;
  }

  int64_t offset() {
    bool plus = cursor_.accept('+');
    if (!plus && !cursor_.peek().is('-')) return 0;
    Operand value = cursor_.literal();
    if (value.kind != Operand::kInteger) cursor_.fail("an integer before this");
    return value.bits;
  }

  // [base + offset, more, ...]; "[tensor, {x, y}]".
  Operand address(int depth) {
    Operand result;
    result.kind = Operand::kAddress;
    Operand base = operand(depth);
    result.bits = offset();
    result.elements.push_back(std::move(base));
    while (cursor_.accept(',')) result.elements.push_back(operand(depth));
    cursor_.expect(']');
    return result;
  }

  Operand name() {
    Operand result;
    std::string_view word = cursor_.word();
    if (word == "_") return result;
    result.index = find_register(word);
    if (result.index >= 0) {
      result.kind = Operand::kRegister;
      return result;
    }
    result.name = std::string(word);
    for (int scope = scope_; scope >= 0; scope = scopes_[static_cast<std::size_t>(scope)].parent) {
      const auto& variables = scopes_[static_cast<std::size_t>(scope)].variables;
      auto found = variables.find(result.name);
      if (found == variables.end()) continue;
      result.kind = Operand::kVariable;
      result.variable = found->second;
      if (result.variable->space == Space::kShared && result.variable->is_dynamic()) {
        function_.dynamic_alignment =
            std::max(function_.dynamic_alignment, result.variable->alignment);
      }
      return result;
    }
    result.kind = word[0] == '%' || word == "WARP_SZ" ? Operand::kSpecial : Operand::kName;
    return result;
  }

  int find_register(std::string_view word) const {
    std::size_t digits = word.size();
    while (digits > 0 && word[digits - 1] >= '0' && word[digits - 1] <= '9') --digits;
    int number = -1;
    if (digits < word.size()) {
      std::from_chars(word.data() + digits, word.data() + word.size(), number);
    }
    std::string full(word);
    std::string prefix(word.substr(0, digits));
    for (int scope = scope_; scope >= 0; scope = scopes_[static_cast<std::size_t>(scope)].parent) {
      const auto& registers = scopes_[static_cast<std::size_t>(scope)].registers;
      auto exact = registers.find(full);
      if (exact != registers.end() && exact->second.count == 0) return exact->second.first;
      if (number < 0) continue;
      auto range = registers.find(prefix);
      if (range != registers.end() && number < range->second.count) {
        return range->second.first + number;
      }
    }
    return -1;
  }

  void resolve_targets() {
    for (auto [index, scope] : jumps_) {
      Instruction& jump = function_.code[index];
      if (jump.operands.empty() || jump.operands.back().kind != Operand::kName) {
        fault("line %d: '%s' has no label", jump.line, jump.text.c_str());
      }
      const std::string& name = jump.operands.back().name;
      if (jump.opcode == "bra") {
        jump.targets.push_back(find_label(name, scope, jump.line));
        continue;
      }
      auto table = function_.branch_tables.find(name);
      if (table == function_.branch_tables.end()) {
        fault("line %d: there is no table '%s'", jump.line, name.c_str());
      }
      for (const std::string& label : table->second) {
        jump.targets.push_back(find_label(label, scope, jump.line));
      }
    }
  }

  int find_label(const std::string& name, int scope, int line) const {
    for (; scope >= 0; scope = scopes_[static_cast<std::size_t>(scope)].parent) {
      const auto& labels = scopes_[static_cast<std::size_t>(scope)].labels;
      auto found = labels.find(name);
      if (found != labels.end()) return found->second;
    }
    fault("line %d: there is no label '%s'", line, name.c_str());
  }

  Scope& current() { return scopes_[static_cast<std::size_t>(scope_)]; }

  struct Jump {
    std::size_t index;
    int scope;
  };

  static constexpr int kMostRegisters = 1 << 20;
  static constexpr int kMostNesting = 4;

  Cursor& cursor_;
  Module& module_;
  Function& function_;
  std::vector<Scope> scopes_;
  int scope_ = 0;
  std::vector<Jump> jumps_;
  LineInfo lines_;
};

}  // namespace

void parse_body(Cursor& cursor, const Names& names, Module& module, Function& function) {
  Body(cursor, names, module, function).run();
}

}  // namespace warploom::emulator::ptx
