#include "emulator/ptx/op_facts.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/ptx/types.h"

namespace warploom::emulator {
namespace {

using ptx::Instruction;
using ptx::Space;

struct ClassRow {
  std::string_view opcode;
  OpClass op_class;
};

// Opcodes that are in one class whatever their type; all others compute.
constexpr ClassRow kClasses[] = {
    {"activemask", OpClass::kWarp},   {"atom", OpClass::kAtomic},
    {"bar", OpClass::kBarrier},       {"barrier", OpClass::kBarrier},
    {"bra", OpClass::kControl},       {"brx", OpClass::kControl},
    {"call", OpClass::kControl},      {"clusterlaunchcontrol", OpClass::kAsync},
    {"cp", OpClass::kAsync},          {"cvt", OpClass::kConvert},
    {"cvta", OpClass::kMove},         {"discard", OpClass::kOther},
    {"elect", OpClass::kWarp},        {"exit", OpClass::kControl},
    {"fence", OpClass::kBarrier},     {"griddepcontrol", OpClass::kOther},
    {"isspacep", OpClass::kMove},     {"ld", OpClass::kMemory},
    {"ldmatrix", OpClass::kMemory},   {"ldu", OpClass::kMemory},
    {"mapa", OpClass::kMove},         {"match", OpClass::kWarp},
    {"mbarrier", OpClass::kBarrier},  {"membar", OpClass::kBarrier},
    {"mma", OpClass::kMatrix},        {"mov", OpClass::kMove},
    {"movmatrix", OpClass::kMove},    {"multimem", OpClass::kAtomic},
    {"nanosleep", OpClass::kOther},   {"prefetch", OpClass::kOther},
    {"prefetchu", OpClass::kOther},   {"prmt", OpClass::kMove},
    {"red", OpClass::kAtomic},        {"redux", OpClass::kWarp},
    {"ret", OpClass::kControl},       {"selp", OpClass::kMove},
    {"setmaxnreg", OpClass::kOther},  {"shfl", OpClass::kWarp},
    {"st", OpClass::kMemory},         {"stmatrix", OpClass::kMemory},
    {"trap", OpClass::kControl},      {"vote", OpClass::kWarp},
    {"wgmma", OpClass::kMatrix},
};

constexpr const char* kClassNames[kOpClasses] = {
    "integer", "float",   "convert",      "move",   "control",       "memory", "atomic",
    "warp",    "barrier", "asynchronous", "matrix", "tensor memory", "other"};

bool has(const Instruction& instruction, std::string_view word) {
  const auto& words = instruction.modifiers;
  return std::find(words.begin(), words.end(), word) != words.end();
}

Type last_type_of(const Instruction& instruction) {
  for (auto word = instruction.modifiers.rbegin(); word != instruction.modifiers.rend(); ++word) {
    Type type = parse_type(*word);
    if (type != Type::kNone) return type;
  }
  return Type::kNone;
}

Space space_of(const Instruction& instruction) {
  struct Row {
    std::string_view word;
    Space space;
  };
  static constexpr Row kRows[] = {
      {"global", Space::kGlobal},         {"const", Space::kConst},
      {"param", Space::kParam},           {"param::entry", Space::kParam},
      {"param::func", Space::kParam},     {"shared", Space::kShared},
      {"shared::cta", Space::kShared},    {"shared::cluster", Space::kShared},
      {"local", Space::kLocal},
  };
  for (const Row& row : kRows) {
    if (has(instruction, row.word)) return row.space;
  }
  return Space::kGeneric;
}

uint32_t vector_length(const Instruction& instruction) {
  return has(instruction, "v2") ? 2 : has(instruction, "v4") ? 4 : has(instruction, "v8") ? 8 : 1;
}

// The number behind `prefix` in the first modifier that consists of both; `missing` if there is
// none.
uint32_t number_behind(const Instruction& instruction, const char* prefix, uint32_t missing) {
  std::string pattern = std::string(prefix) + "%u%c";
  for (const std::string& word : instruction.modifiers) {
    unsigned number = 0;
    char rest;
    if (std::sscanf(word.c_str(), pattern.c_str(), &number, &rest) == 1) return number;
  }
  return missing;
}

bool is_sparse(const Instruction& instruction) {
  return has(instruction, "sp") || has(instruction, "sp::ordered_metadata");
}

}  // namespace

const char* op_class_name(OpClass op_class) { return kClassNames[static_cast<int>(op_class)]; }

OpClass op_class_of(const Instruction& instruction) {
  const std::string& opcode = instruction.opcode;
  if (opcode == "tcgen05") {
    if (has(instruction, "mma")) return OpClass::kMatrix;
    return has(instruction, "commit") || has(instruction, "wait") ? OpClass::kBarrier
                                                                   : OpClass::kTensorMemory;
  }
  if (opcode == "wmma") return has(instruction, "mma") ? OpClass::kMatrix : OpClass::kMemory;
  if (has(instruction, "async") && (opcode == "st" || opcode == "red")) return OpClass::kAsync;
  auto row = std::find_if(std::begin(kClasses), std::end(kClasses),
                          [&](const ClassRow& entry) { return entry.opcode == opcode; });
  if (row != std::end(kClasses)) return row->op_class;
  return is_float(last_type_of(instruction)) ? OpClass::kFloat : OpClass::kInteger;
}

LaneAccess lane_access_of(const Instruction& instruction) {
  const std::string& opcode = instruction.opcode;
  LaneAccess access;
  access.space = space_of(instruction);
  if (opcode == "ldmatrix" || opcode == "stmatrix") {
    access.kind = LaneAccess::kMatrices;
    access.space = Space::kShared;
    access.reads = opcode == "ldmatrix";
    access.writes = !access.reads;
    access.bytes = 16;
    // A matrix of 8 rows, or of 16.
    uint32_t matrices = number_behind(instruction, "x", 1) * (has(instruction, "m16n16") ? 2 : 1);
    access.lanes = matrices >= 4 ? ~0u : (1u << 8 * matrices) - 1;
    return access;
  }
  bool load = opcode == "ld" || opcode == "ldu";
  bool store = opcode == "st";
  bool atomic = opcode == "atom" || opcode == "red";
  // st.async, red.async and st.bulk tell what they move; with .release they are plain accesses.
  bool tells = has(instruction, "bulk") ||
               (has(instruction, "async") && !has(instruction, "release"));
  if ((!load && !store && !atomic) || tells) return access;
  access.kind = LaneAccess::kLanes;
  access.reads = load || atomic;
  access.writes = store || atomic;
  int bits = type_bits(last_type_of(instruction));
  access.bytes = static_cast<uint32_t>(std::max(bits, 8)) / 8 * vector_length(instruction);
  return access;
}

MatrixWork matrix_work_of(const Instruction& instruction) {
  MatrixWork work;
  const bool group = instruction.opcode == "wgmma", fragments = instruction.opcode == "wmma";
  if (!group && instruction.opcode != "mma" && !(fragments && has(instruction, "mma"))) return work;
  for (const std::string& word : instruction.modifiers) {
    unsigned m = 0, n = 0, k = 0;
    if (std::sscanf(word.c_str(), "m%un%uk%u", &m, &n, &k) != 3) continue;
    // Four warps execute one wgmma. Where A is sparse, half of the products are formed.
    work.flops = uint64_t{2} * m * n * k / (group ? 4 : 1) / (is_sparse(instruction) ? 2 : 1);
    break;
  }
  std::vector<std::string> types;
  std::copy_if(instruction.modifiers.begin(), instruction.modifiers.end(),
               std::back_inserter(types),
               [](const std::string& word) { return parse_type(word) != Type::kNone; });
  // The second type is the one of A; wmma of f16 names those of D and C only.
  const bool without_a = fragments && types.size() == 2;
  if (work.flops != 0 && types.size() > 1) {
    const std::string a = without_a ? "f16" : types[1];
    work.name = instruction.opcode + (is_sparse(instruction) ? ".sp " : " ") + a;
    // mma.m8n8k4 of f16 is four products.
    if (instruction.opcode == "mma" && a == "f16" && has(instruction, "m8n8k4")) work.flops *= 4;
  }
  return work;
}

std::string tensor_work_name(const Instruction& instruction) {
  std::string name = instruction.opcode + ".mma";
  for (const std::string& word : instruction.modifiers) {
    if (word.rfind("kind::", 0) == 0) name += " " + word.substr(6);
  }
  return name;
}

const char* waits_for(const Instruction& instruction) {
  const std::string& opcode = instruction.opcode;
  if (opcode == "mbarrier") {
    bool wait = has(instruction, "try_wait") || has(instruction, "test_wait");
    return wait ? "mbarrier" : nullptr;
  }
  if (opcode == "bar" || opcode == "barrier") {
    if (has(instruction, "cluster")) return has(instruction, "wait") ? "cluster barrier" : nullptr;
    return has(instruction, "sync") || has(instruction, "red") ? "barrier" : nullptr;
  }
  if (opcode == "cp") {
    bool wait = has(instruction, "wait_group") || has(instruction, "wait_all");
    return wait ? "copies" : nullptr;
  }
  if (opcode == "wgmma") return has(instruction, "wait_group") ? "wgmma" : nullptr;
  if (opcode == "tcgen05") return has(instruction, "wait") ? "tensor memory" : nullptr;
  return nullptr;
}

}  // namespace warploom::emulator
