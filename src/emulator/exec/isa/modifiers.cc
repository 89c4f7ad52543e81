#include "emulator/exec/isa/modifiers.h"

#include <algorithm>

#include "emulator/base/fault.h"

namespace warploom::emulator {

Modifiers::Modifiers(const ptx::Instruction& instruction)
    : instruction_(instruction), left_(instruction.modifiers) {}

bool Modifiers::take(std::string_view name) {
  auto found = std::find(left_.begin(), left_.end(), name);
  if (found == left_.end()) return false;
  left_.erase(found);
  return true;
}

int Modifiers::take_one(std::initializer_list<std::string_view> names) {
  int index = 0;
  for (std::string_view name : names) {
    if (take(name)) return index;
    ++index;
  }
  return -1;
}

void Modifiers::take_all(std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) take(name);
}

Type Modifiers::take_type() {
  for (auto it = left_.begin(); it != left_.end(); ++it) {
    Type type = parse_type(*it);
    if (type == Type::kNone) continue;
    left_.erase(it);
    return type;
  }
  return Type::kNone;
}

std::string Modifiers::take_first() {
  if (left_.empty()) return "";
  std::string result = left_.front();
  left_.erase(left_.begin());
  return result;
}

void Modifiers::finish() const {
  if (left_.empty()) return;
  fault("line %d: the modifier '.%s' of '%s' is not supported", instruction_.line,
        left_.front().c_str(), instruction_.text.c_str());
}

Type last_type(const ptx::Instruction& instruction) {
  for (auto it = instruction.modifiers.rbegin(); it != instruction.modifiers.rend(); ++it) {
    Type type = parse_type(*it);
    if (type != Type::kNone) return type;
  }
  return Type::kNone;
}

}  // namespace warploom::emulator
