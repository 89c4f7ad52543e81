// The format strings of printf in device code.

#ifndef WARPLOOM_EMULATOR_EXEC_ISA_CONTROL_PRINT_FORMAT_H_
#define WARPLOOM_EMULATOR_EXEC_ISA_CONTROL_PRINT_FORMAT_H_

#include <cstdint>
#include <functional>
#include <string>

namespace warploom::emulator {

struct PrintArguments {
  std::function<uint64_t(uint32_t bytes)> next;          // the next value of 4 or 8 bytes
  std::function<std::string(uint64_t address)> string;   // that lies at an address
};

struct Printed {
  std::string text;
  uint32_t count = 0;   // of values, which is what printf returns on the device
};

// Conversions are those of C but %n; what is not one is printed as it stands.
Printed print_format(const std::string& format_text, const PrintArguments& arguments);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_ISA_CONTROL_PRINT_FORMAT_H_
