// What fuzzing executes: one input each, which is hostile. Nothing is returned: an input is fine if
// the process survives it, in time and under the sanitizers.

#ifndef WARPLOOM_EMULATOR_FUZZ_TARGETS_H_
#define WARPLOOM_EMULATOR_FUZZ_TARGETS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace warploom::emulator::fuzz {

// PTX: loads the module and launches each of its kernels. Its first line may say how:
// "//launch GRID BLOCK SHARED CLUSTER".
void run_ptx(const std::string& text);

// Arguments of the functions that encode tensor maps, then a copy of a box of that map.
void run_tensor_map(const uint8_t* data, std::size_t size);

// A format of printf, a zero, and the bytes of its arguments.
void run_print_format(const uint8_t* data, std::size_t size);

// The first byte of an input tells the target; those of PTX are plain text.
constexpr uint8_t kTensorMapInput = 1;
constexpr uint8_t kPrintFormatInput = 2;

// Numbers from the bytes of an input; zeros behind its end.
class Reader {
 public:
  Reader(const uint8_t* data, std::size_t size) : data_(data), left_(size) {}

  template <class T>
  T take() {
    T value{};
    const std::size_t count = left_ < sizeof(T) ? left_ : sizeof(T);
    if (count != 0) std::memcpy(&value, data_, count);
    data_ += count;
    left_ -= count;
    return value;
  }

  std::size_t left() const { return left_; }

 private:
  const uint8_t* data_;
  std::size_t left_;
};

}  // namespace warploom::emulator::fuzz

#endif  // WARPLOOM_EMULATOR_FUZZ_TARGETS_H_
