// PTX through the driver API, as a program would use it.

#include <array>
#include <cstdio>
#include <vector>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/driver_api.h"
#include "emulator/fuzz/targets.h"

extern "C" {
int cuModuleLoadData(void** module, const void* image);
int cuModuleUnload(void* module);
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuLaunchKernelEx(const warploom::emulator::abi::LaunchConfig* config, void* function,
                     void** arguments, void** extra);
int cuTensorMapEncodeTiled(void* map, int data_type, unsigned rank, void* address,
                           const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                           const uint32_t* element_strides, int interleave, int swizzle,
                           int l2_promotion, int oob_fill);
int64_t warploom_emulator_parameter_bytes(const void* function, int index);
void warploom_emulator_set_instruction_limit(uint64_t limit);
void warploom_emulator_set_seconds(double seconds);
void warploom_emulator_set_threads(uint32_t threads);
void warploom_emulator_set_checks(int on);
void warploom_emulator_clear_reports();
}

namespace warploom::emulator::fuzz {
namespace {

constexpr std::size_t kBufferBytes = 4096;
constexpr std::size_t kMostParameters = 64;
constexpr uint64_t kInstructions = 20000;
constexpr double kSeconds = 5;

struct Shape {
  unsigned grid = 1, block = 64, shared = 4096, cluster = 1;
};

Shape shape_of(const std::string& text) {
  Shape shape;
  // Without the line, or with a part of it, the rest is as it was.
  (void)std::sscanf(text.c_str(), "//launch %9u %9u %9u %9u", &shape.grid, &shape.block,
                    &shape.shared, &shape.cluster);
  return shape;
}

// Names behind ".entry".
std::vector<std::string> entries_of(const std::string& text) {
  static constexpr const char* kNameCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$%.";
  std::vector<std::string> names;
  for (std::size_t at = 0; (at = text.find(".entry", at)) != std::string::npos;) {
    at = text.find_first_not_of(" \t\n\r", at + 6);
    if (at == std::string::npos) break;
    std::size_t end = text.find_first_not_of(kNameCharacters, at);
    names.push_back(text.substr(at, end == std::string::npos ? end : end - at));
  }
  return names;
}

// A matrix of bytes in the buffer, which PTX can only have from the host.
void encode(void* map, void* buffer) {
  const uint64_t dims[] = {64, 64}, strides[] = {64};
  const uint32_t box[] = {32, 8}, steps[] = {1, 1};
  cuTensorMapEncodeTiled(map, 0, 2, buffer, dims, strides, box, steps, 0, 0, 0, 0);
}

// Pointers get a buffer, what may be a tensor map gets one, everything else zeros.
class Arguments {
 public:
  Arguments(const void* function, void* buffer) {
    int64_t bytes;
    while (values_.size() < kMostParameters &&
           (bytes = warploom_emulator_parameter_bytes(function, static_cast<int>(values_.size()))) >=
               0) {
      auto size = static_cast<std::size_t>(bytes);
      std::vector<Line> value(size / sizeof(Line) + 1, Line{});
      if (size == sizeof(buffer)) std::memcpy(value.data(), &buffer, size);
      if (size == 128) encode(value.data(), buffer);
      values_.push_back(std::move(value));
    }
    for (std::vector<Line>& value : values_) pointers_.push_back(value.data());
    pointers_.push_back(nullptr);
  }

  void** pointers() { return pointers_.data(); }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<std::vector<Line>> values_;
  std::vector<void*> pointers_;
};

void launch(void* module, const std::string& name, const Shape& shape, void* buffer) {
  void* function = nullptr;
  if (cuModuleGetFunction(&function, module, name.c_str()) != abi::kSuccess) return;
  Arguments arguments(function, buffer);
  abi::LaunchAttribute attribute{};
  attribute.id = abi::kAttributeClusterDimension;
  attribute.value.dimension[0] = shape.cluster;
  attribute.value.dimension[1] = attribute.value.dimension[2] = 1;
  abi::LaunchConfig config{{shape.grid, 1, 1}, {shape.block, 1, 1}, shape.shared, nullptr,
                           &attribute,         shape.cluster != 1 ? 1u : 0u};
  cuLaunchKernelEx(&config, function, arguments.pointers(), nullptr);
  warploom_emulator_clear_reports();
}

}  // namespace

void run_ptx(const std::string& text) {
  warploom_emulator_set_instruction_limit(kInstructions);
  warploom_emulator_set_seconds(kSeconds);
  warploom_emulator_set_threads(1);
  const Shape shape = shape_of(text);
  for (bool checks : {false, true}) {
    warploom_emulator_set_checks(checks ? 1 : 0);
    void* buffer = warploom_emulator_allocate(kBufferBytes);
    std::memset(buffer, 0, kBufferBytes);
    void* module = nullptr;
    if (cuModuleLoadData(&module, text.c_str()) == abi::kSuccess) {
      for (const std::string& name : entries_of(text)) launch(module, name, shape, buffer);
      cuModuleUnload(module);
    }
    warploom_emulator_release(buffer);
  }
}

}  // namespace warploom::emulator::fuzz
