#include "emulator/exec/isa/values.h"

#include <cstddef>
#include <cstring>

#include "emulator/base/fault.h"
#include "emulator/base/lanes.h"
#include "emulator/ptx/limits.h"

namespace warploom::emulator {

int storage_bits(Type type) {
  if (type == Type::kPred) return 1;
  return type_bits(type) <= 32 ? 32 : type_bits(type);
}

void Values::enter(ProgramFunction& function) {
  function_ = &function;
  registers_.assign(function.source->registers.size(), Ref{});
}

Ref Values::allocate(int width, uint32_t poison) {
  constexpr std::size_t kLine = 64;
  std::vector<uint8_t>& file = program_.file;
  const std::size_t size = width == 1 ? 8 : static_cast<std::size_t>(width) / 8 * kLanes;
  if (width != 1) file.resize((file.size() + kLine - 1) / kLine * kLine);
  if (file.size() > ptx::kMostRegisterBytes) {
    fault("line %d: the registers that '%s' and the functions which it shares a kernel with use "
          "take more than %zu bytes for a warp; no more are allowed",
          function_->source->line, function_->source->name.c_str(), ptx::kMostRegisterBytes);
  }
  Ref ref;
  ref.bits = static_cast<uint8_t>(width);
  ref.offset = static_cast<int32_t>(file.size());
  file.resize(file.size() + size);
  for (std::size_t i = file.size() - size; i < file.size(); i += sizeof(poison)) {
    std::memcpy(&file[i], &poison, sizeof(poison));
  }
  return ref;
}

Ref Values::register_ref(int index) {
  Ref& ref = registers_[static_cast<std::size_t>(index)];
  if (!ref.present()) {
    // Only registers that are used get a place: compilers declare many more.
    const Type type = function_->source->registers[static_cast<std::size_t>(index)];
    // Narrow values are zero-extended.
    const int bits = type_bits(type);
    const bool narrow = type != Type::kPred && bits < 32;
    ref = allocate(storage_bits(type), narrow ? (1u << bits) / 2 - 1 : kRegisterPoison);
    function_->values.push_back(ref);
  }
  return ref;
}

MeetingPlace Values::meeting_place() {
  MeetingPlace result;
  for (auto& operand : result.places) operand = {allocate(1), allocate(32), allocate(64)};
  return result;
}

Ref Values::literal(uint64_t bits, int width) {
  auto [entry, is_new] = literals_.try_emplace({bits, width});
  if (!is_new) return entry->second;
  std::vector<uint8_t>& bytes = program_.literals;
  bytes.resize((bytes.size() + 7) & ~std::size_t{7});
  if (bytes.size() > ptx::kMostRegisterBytes) {
    fault("line %d: the literals of '%s' and of the functions which it shares a kernel with take "
          "more than %zu bytes; no more are allowed",
          function_->source->line, function_->source->name.c_str(), ptx::kMostRegisterBytes);
  }
  entry->second.bits = static_cast<uint8_t>(width);
  entry->second.offset = ~static_cast<int32_t>(bytes.size());
  uint64_t stored = width == 1 && bits != 0 ? kAllLanes : bits;
  int copies = width == 1 ? 1 : kLanes;
  std::size_t size = width == 64 ? 8 : 4;
  for (int i = 0; i < copies; ++i) {
    const auto* begin = reinterpret_cast<const uint8_t*>(&stored);
    bytes.insert(bytes.end(), begin, begin + size);
  }
  return entry->second;
}

Ref Values::special(const std::string& name, const ptx::Variable* variable, bool generic,
                    int width) {
  std::string key = variable != nullptr
                        ? "&" + std::to_string(reinterpret_cast<uintptr_t>(variable))
                        : name;
  auto [entry, is_new] = specials_.try_emplace({key, generic ? -width : width});
  if (is_new) {
    entry->second = allocate(width);
    program_.specials.push_back({name, variable, generic, entry->second});
    if (variable != nullptr && variable->space == ptx::Space::kLocal) {
      function_->values.push_back(entry->second);
      function_->addresses.push_back({entry->second, variable->offset, generic});
    }
  }
  return entry->second;
}

Ref Values::sink(int width) {
  auto [entry, is_new] = sinks_.try_emplace(width);
  if (is_new) entry->second = allocate(width);
  return entry->second;
}

Ref Values::carry() {
  if (!carry_.present()) carry_ = allocate(1);
  return carry_;
}

Passed Values::formal(const ptx::Formal& formal) {
  Passed passed;
  passed.in_memory = formal.variable != nullptr;
  if (passed.in_memory) {
    passed.value = special(formal.name, formal.variable, false, 64);
    passed.bytes = static_cast<uint32_t>(formal.variable->bytes);
  } else {
    passed.value = register_ref(formal.register_index);
    passed.bytes = static_cast<uint32_t>(type_bits(formal.type)) / 8;
  }
  return passed;
}

}  // namespace warploom::emulator
