#include "emulator/exec/isa/control/system_call.h"

#include <cstddef>
#include <cstring>

#include "emulator/exec/isa/access.h"
#include "emulator/exec/isa/control/print_format.h"
#include "emulator/exec/isa/lanes.h"
#include "emulator/exec/machine/call_form.h"
#include "emulator/exec/machine/cluster.h"

namespace warploom::emulator {
namespace {

const CallForm& form_of(const Op& op) { return *static_cast<const CallForm*>(op.form); }

uint64_t argument(Warp& warp, const Op& op, std::size_t index, int lane) {
  const Passed& passed = form_of(op).inputs[index];
  if (!passed.in_memory) return warp.value(passed.value, lane);
  uint64_t value = 0;
  std::memcpy(&value, warp.local(lane, warp.value(passed.value, lane), passed.bytes),
              passed.bytes);
  return value;
}

void set_result(Warp& warp, const Op& op, int lane, uint64_t value) {
  const Passed& passed = form_of(op).outputs[0];
  if (passed.in_memory) {
    std::memcpy(warp.local(lane, warp.value(passed.value, lane), passed.bytes), &value,
                passed.bytes);
  } else if (passed.value.present()) {
    warp.set_value(passed.value, lane, value);
  }
}

// Longer strings lack their end, in all likelihood.
constexpr std::size_t kMostCharacters = 1 << 16;

std::string string_at(Warp& warp, int lane, uint64_t address) {
  std::string text;
  for (;; ++address) {
    auto c = static_cast<char>(*resolve(warp, ptx::Space::kGeneric, lane, address, 1, 1));
    if (c == '\0') return text;
    text += c;
    if (text.size() > kMostCharacters) fault("a string of the kernel has no end");
  }
}

Step print(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    std::string format_text = string_at(warp, lane, argument(warp, op, 0, lane));
    uint64_t next = argument(warp, op, 1, lane);
    PrintArguments arguments;
    arguments.next = [&](uint32_t bytes) {
      next = (next + bytes - 1) / bytes * bytes;
      uint64_t value = 0;
      std::memcpy(&value, resolve(warp, ptx::Space::kGeneric, lane, next, bytes, bytes), bytes);
      next += bytes;
      return value;
    };
    arguments.string = [&](uint64_t address) { return string_at(warp, lane, address); };
    Printed printed = print_format(format_text, arguments);
    Output::append(warp.cluster().printed, printed.text);
    set_result(warp, op, lane, printed.count);
  });
  return Step::kNext;
}

Step assert_fail(Warp& warp, const Op& op, uint32_t active) {
  int lane = __builtin_ctz(active);
  const Dim3& cta = warp.cta().id();
  const Dim3& block = warp.cluster().launch().block;
  uint32_t thread = warp.id() * kLanes + static_cast<uint32_t>(lane);
  fault("%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.",
        string_at(warp, lane, argument(warp, op, 1, lane)).c_str(),
        static_cast<unsigned>(argument(warp, op, 2, lane)),
        string_at(warp, lane, argument(warp, op, 3, lane)).c_str(), cta[0], cta[1], cta[2],
        thread % block[0], thread / block[0] % block[1], thread / block[0] / block[1],
        string_at(warp, lane, argument(warp, op, 0, lane)).c_str());
}

Step allocate(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    DeviceHeap& heap = *warp.cluster().launch().heap;
    set_result(warp, op, lane, heap.allocate(argument(warp, op, 0, lane)));
  });
  return Step::kNext;
}

Step release(Warp& warp, const Op& op, uint32_t active) {
  for_each_lane(active, [&](int lane) {
    warp.cluster().launch().heap->release(argument(warp, op, 0, lane));
  });
  return Step::kNext;
}

}  // namespace

const SystemCall* find_system_call(const std::string& name) {
  static const std::vector<SystemCall> calls = {
      {"vprintf", {8, 8}, {4}, print},
      {"__assertfail", {8, 8, 4, 8, 8}, {}, assert_fail},
      {"malloc", {8}, {8}, allocate},
      {"free", {8}, {}, release},
  };
  for (const SystemCall& call : calls) {
    if (call.name == name) return &call;
  }
  return nullptr;
}

}  // namespace warploom::emulator
