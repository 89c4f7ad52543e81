#include "emulator/exec/fault.h"

#include <cstdarg>
#include <cstdio>

namespace warploom::emulator {
namespace {

std::string vformat(const char* text, std::va_list arguments) {
  char buffer[2048];
  std::vsnprintf(buffer, sizeof(buffer), text, arguments);
  return buffer;
}

}  // namespace

void fault(const char* text, ...) {
  std::va_list arguments;
  va_start(arguments, text);
  std::string message = vformat(text, arguments);
  va_end(arguments);
  throw Fault(message);
}

std::string format(const char* text, ...) {
  std::va_list arguments;
  va_start(arguments, text);
  std::string message = vformat(text, arguments);
  va_end(arguments);
  return message;
}

}  // namespace warploom::emulator
