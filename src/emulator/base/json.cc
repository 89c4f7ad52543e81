#include "emulator/base/json.h"

#include "emulator/base/fault.h"

namespace warploom::emulator {

std::string json_string(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += format("\\u%04x", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

JsonObject& JsonObject::add(const std::string& name, const std::string& value) {
  if (!content_.empty()) content_ += ", ";
  content_ += json_string(name) + ": " + value;
  return *this;
}

JsonObject& JsonObject::add(const std::string& name, uint64_t value) {
  return add(name, std::to_string(value));
}

JsonList& JsonList::add(const std::string& value) {
  if (!content_.empty()) content_ += ", ";
  content_ += value;
  return *this;
}

}  // namespace warploom::emulator
