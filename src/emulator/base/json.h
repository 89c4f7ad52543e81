// Writes JSON for the Python face.

#ifndef WARPLOOM_EMULATOR_BASE_JSON_H_
#define WARPLOOM_EMULATOR_BASE_JSON_H_

#include <cstdint>
#include <string>

namespace warploom::emulator {

// The text in quotation marks, with what JSON wants escaped.
std::string json_string(const std::string& text);

// {"name": value, ...} or [value, ...], put together from values that are JSON already.
class JsonObject {
 public:
  JsonObject& add(const std::string& name, const std::string& value);
  JsonObject& add(const std::string& name, uint64_t value);
  std::string text() const { return "{" + content_ + "}"; }

 private:
  std::string content_;
};

class JsonList {
 public:
  JsonList& add(const std::string& value);
  JsonList& add(uint64_t value) { return add(std::to_string(value)); }
  std::string text() const { return "[" + content_ + "]"; }

 private:
  std::string content_;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_BASE_JSON_H_
