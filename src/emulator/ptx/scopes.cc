#include "emulator/ptx/scopes.h"

#include <charconv>
#include <cstddef>

#include "emulator/base/fault.h"
#include "emulator/ptx/limits.h"

namespace warploom::emulator::ptx {
namespace {

[[noreturn]] void defined_twice(int line, const char* kind, const std::string& name) {
  fault("line %d: the %s '%s' is declared twice in one block", line, kind, name.c_str());
}

}  // namespace

Scopes::Scopes(const Names& globals, const Names& formals) : globals_(globals) {
  scopes_.emplace_back();
  for (const auto& [name, variable] : formals) scopes_[0].variables[name] = variable;
}

void Scopes::enter(int line) {
  Scope inner;
  inner.parent = current_;
  inner.depth = top().depth + 1;
  if (inner.depth > static_cast<int>(kMostNesting)) {
    fault("line %d: blocks are nested %d deep; at most %u are allowed", line, inner.depth,
          kMostNesting);
  }
  scopes_.push_back(std::move(inner));
  current_ = static_cast<int>(scopes_.size()) - 1;
}

void Scopes::leave() { current_ = top().parent; }

void Scopes::declare_registers(const std::string& name, int first, int count, int line) {
  bool is_new = top().registers.try_emplace(name, RegisterRange{first, count}).second;
  if (!is_new) defined_twice(line, "register", name);
}

void Scopes::declare_variable(const Variable& variable) {
  bool is_new = top().variables.try_emplace(variable.name, &variable).second;
  if (!is_new) defined_twice(variable.line, "variable", variable.name);
}

void Scopes::declare_label(const std::string& name, int instruction, int line) {
  if (!top().labels.try_emplace(name, instruction).second) defined_twice(line, "label", name);
}

int Scopes::find_register(std::string_view word) const {
  std::size_t digits = word.size();
  while (digits > 0 && word[digits - 1] >= '0' && word[digits - 1] <= '9') --digits;
  int number = -1;
  if (digits < word.size()) {
    std::from_chars(word.data() + digits, word.data() + word.size(), number);
  }
  std::string full(word);
  std::string prefix(word.substr(0, digits));
  for (int index = current_; index >= 0; index = scope(index).parent) {
    const auto& registers = scope(index).registers;
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

const Variable* Scopes::find_variable(const std::string& name) const {
  for (int index = current_; index >= 0; index = scope(index).parent) {
    auto found = scope(index).variables.find(name);
    if (found != scope(index).variables.end()) return found->second;
  }
  auto found = globals_.find(name);
  return found != globals_.end() ? found->second : nullptr;
}

int Scopes::find_label(const std::string& name, int index, int line) const {
  for (; index >= 0; index = scope(index).parent) {
    auto found = scope(index).labels.find(name);
    if (found != scope(index).labels.end()) return found->second;
  }
  fault("line %d: there is no label '%s'", line, name.c_str());
}

}  // namespace warploom::emulator::ptx
