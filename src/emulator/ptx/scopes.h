// The names that a statement of a function sees: what a "{ ... }" declares and what surrounds it.
// Inline assembly reuses names, so that scopes matter.

#ifndef WARPLOOM_EMULATOR_PTX_SCOPES_H_
#define WARPLOOM_EMULATOR_PTX_SCOPES_H_

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/ptx/declaration.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {

class Scopes {
 public:
  // The outermost scope has `formals`; whatever no scope has is looked up in `globals`, which must
  // outlive this.
  Scopes(const Names& globals, const Names& formals);

  void enter(int line);  // a Fault if blocks nest too deep
  void leave();
  bool is_outermost() const { return current_ == 0; }
  int current() const { return current_; }

  // `count` 0 declares one register of exactly this name, else name0, name1, ... All of these are a
  // Fault if the scope has the name already.
  void declare_registers(const std::string& name, int first, int count, int line);
  void declare_variable(const Variable& variable);
  void declare_label(const std::string& name, int instruction, int line);

  int find_register(std::string_view name) const;                 // -1 if there is none
  const Variable* find_variable(const std::string& name) const;   // nullptr if there is none
  int find_label(const std::string& name, int scope, int line) const;  // a Fault if there is none

 private:
  struct RegisterRange {
    int first = 0;
    int count = 0;
  };

  struct Scope {
    int parent = -1;
    int depth = 0;
    std::unordered_map<std::string, RegisterRange> registers;
    std::unordered_map<std::string, const Variable*> variables;
    std::unordered_map<std::string, int> labels;
  };

  const Scope& scope(int index) const { return scopes_[static_cast<std::size_t>(index)]; }
  Scope& top() { return scopes_[static_cast<std::size_t>(current_)]; }

  const Names& globals_;
  std::vector<Scope> scopes_;
  int current_ = 0;
};

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_SCOPES_H_
