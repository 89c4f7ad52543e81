#include "emulator/base/fault.h"

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace warploom::emulator {
namespace {

std::string vformat(const char* text, std::va_list arguments) {
  std::va_list again;
  va_copy(again, arguments);
  int length = std::vsnprintf(nullptr, 0, text, again);
  va_end(again);
  std::string result(static_cast<std::size_t>(std::max(length, 0)), '\0');
  std::vsnprintf(result.data(), result.size() + 1, text, arguments);
  return result;
}

}  // namespace

void fault(const char* text, ...) {
  std::va_list arguments;
  va_start(arguments, text);
  std::string message = vformat(text, arguments);
  va_end(arguments);
  throw Fault(message);
}

void fault_of(FaultKind kind, const char* text, ...) {
  std::va_list arguments;
  va_start(arguments, text);
  std::string message = vformat(text, arguments);
  va_end(arguments);
  throw Fault(message, kind);
}

std::string format(const char* text, ...) {
  std::va_list arguments;
  va_start(arguments, text);
  std::string message = vformat(text, arguments);
  va_end(arguments);
  return message;
}

}  // namespace warploom::emulator
