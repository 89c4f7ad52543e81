// The function that libFuzzer calls, and replay_main.cc.

#include "emulator/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using namespace warploom::emulator::fuzz;  // NOLINT: three functions
  if (size != 0 && data[0] == kTensorMapInput) {
    run_tensor_map(data + 1, size - 1);
  } else if (size != 0 && data[0] == kPrintFormatInput) {
    run_print_format(data + 1, size - 1);
  } else {
    run_ptx(std::string(reinterpret_cast<const char*>(data), size));
  }
  return 0;
}
