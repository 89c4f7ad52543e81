#include "emulator/driver/launch.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "emulator/base/fault.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/library.h"
#include "emulator/driver/session.h"
#include "emulator/driver/stream.h"

namespace warploom::emulator {
namespace {

int execute(const void* function, const LaunchRequest& request) {
  return code_of(Session::instance().launch(function, request), abi::kLaunchFailed);
}

// A pointer to each argument: where a program gives one buffer, they lie in it as in the PTX.
std::vector<void*> pointers_of(const void* function, const LaunchArguments& arguments) {
  constexpr std::uintptr_t kEnd = 0, kPointer = 1, kSize = 2;
  char* buffer = nullptr;
  std::size_t bytes = SIZE_MAX;
  if (arguments.each == nullptr && arguments.buffer != nullptr) {
    for (void** item = arguments.buffer; reinterpret_cast<std::uintptr_t>(*item) != kEnd; item += 2) {
      const auto key = reinterpret_cast<std::uintptr_t>(item[0]);
      if (key == kPointer) buffer = static_cast<char*>(item[1]);
      if (key == kSize) bytes = *static_cast<std::size_t*>(item[1]);
      if (key != kPointer && key != kSize) fault("a launch has an unknown extra option");
    }
  }
  std::vector<void*> pointers;
  while (auto parameter = Session::instance().parameter(function, pointers.size())) {
    const std::size_t index = pointers.size();
    void* pointer = arguments.each != nullptr ? arguments.each[index] : nullptr;
    if (buffer != nullptr) {
      if (parameter->offset + parameter->bytes > bytes) {
        fault("the buffer of a launch ends before argument %zu", index);
      }
      pointer = buffer + parameter->offset;
    }
    if (pointer == nullptr) {
      fault("a launch is given without its argument %zu: a pointer to it is null", index);
    }
    pointers.push_back(pointer);
  }
  return pointers;
}

}  // namespace

Work launch_work(void* function, LaunchRequest request, const LaunchArguments& arguments) {
  std::vector<std::vector<char>> values;
  for (void* pointer : pointers_of(function, arguments)) {
    const auto parameter = Session::instance().parameter(function, values.size());
    const char* from = static_cast<const char*>(pointer);
    values.emplace_back(from, from + parameter->bytes);
  }
  return [function, request, values = std::move(values)]() mutable {
    std::vector<void*> pointers;
    for (std::vector<char>& value : values) pointers.push_back(value.data());
    request.arguments = pointers.data();
    return execute(function, request);
  };
}

int submit_launch(void* function, LaunchRequest request, const LaunchArguments& arguments) {
  return guarded(abi::kLaunchFailed, [&] {
    if (!is_stream(request.stream)) return fail(abi::kInvalidHandle, "there is no such stream");
    void* own = function_of(function);
    if (own == nullptr) return code_of(false, abi::kNotFound);
    if (is_captured(request.stream)) {
      return submit(request.stream, NodeKind::kKernel, launch_work(own, request, arguments));
    }
    std::vector<void*> pointers;
    request.arguments = arguments.each;
    if (arguments.each == nullptr && arguments.buffer != nullptr) {
      pointers = pointers_of(own, arguments);
      request.arguments = pointers.data();
    }
    return execute(own, request);
  });
}

}  // namespace warploom::emulator
