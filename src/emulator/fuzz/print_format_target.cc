// Formats of printf.

#include <algorithm>

#include "emulator/exec/isa/control/print_format.h"
#include "emulator/fuzz/targets.h"

namespace warploom::emulator::fuzz {

void run_print_format(const uint8_t* data, std::size_t size) {
  const uint8_t* end = std::find(data, data + size, uint8_t{0});
  const std::string text(data, end);
  Reader input(end, static_cast<std::size_t>(data + size - end));
  input.take<uint8_t>();
  PrintArguments arguments;
  arguments.next = [&](uint32_t bytes) {
    return bytes == 4 ? input.take<uint32_t>() : input.take<uint64_t>();
  };
  arguments.string = [](uint64_t address) { return std::string(address % 100, 's'); };
  print_format(text, arguments);
}

}  // namespace warploom::emulator::fuzz
