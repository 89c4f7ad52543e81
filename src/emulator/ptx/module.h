// What the parser makes of PTX: names are resolved to registers and variables, nothing is decoded.

#ifndef WARPLOOM_EMULATOR_PTX_MODULE_H_
#define WARPLOOM_EMULATOR_PTX_MODULE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/ptx/types.h"

namespace warploom::emulator::ptx {

enum class Space : uint8_t { kGeneric, kGlobal, kConst, kParam, kShared, kLocal };

// A name in the initial value of a variable: the address of a variable or function goes to `at`.
struct Relocation {
  uint64_t at = 0;      // byte of the initial value
  std::string name;
  int64_t addend = 0;
};

// A variable; `offset` is counted in its space: of the module for global and const, of the function
// for param, shared and local.
struct Variable {
  std::string name;
  int line = 0;  // of the PTX
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  uint32_t alignment = 1;
  uint64_t bytes = 0;  // 0: extern array, such as dynamic shared memory
  uint64_t offset = 0;
  std::vector<uint8_t> initial;  // shorter than bytes: the rest is zero
  std::vector<Relocation> relocations;

  bool is_dynamic() const { return bytes == 0; }
};

struct Operand {
  enum Kind : uint8_t {
    kNone,       // "_", or absent
    kRegister,   // index
    kInteger,    // bits
    kFloat32,    // bits, written 0f...
    kFloat64,    // bits of a double, written 0d... or with a decimal point
    kSpecial,    // name, such as %tid.x
    kVariable,   // address of `variable` plus bits
    kVector,     // elements
    kAddress,    // [elements[0] + bits], further elements: coordinates, mbarrier, ...
    kName,       // a function or a label
  };
  Kind kind = kNone;
  bool negated = false;         // "!p" or "-r"
  int index = -1;               // register
  int second = -1;              // register q of "p|q"
  int64_t bits = 0;
  const Variable* variable = nullptr;
  std::string name;
  std::vector<Operand> elements;
};

// A line of the CUDA source that the PTX was made from, as .loc directives tell it.
struct SourceLine {
  int file = 0;  // key of Module::files
  int line = 0;  // from 1; 0: not known

  bool known() const { return line != 0; }
};

struct Instruction {
  int line = 0;                         // of the PTX
  SourceLine origin;                    // of the code itself
  SourceLine outer_origin;              // of the outermost call that was inlined, else as origin
  std::string text;                     // opcode with modifiers, as written
  std::string opcode;                   // "ld"
  std::vector<std::string> modifiers;   // {"shared::cta", "b32"}
  int guard = -1;                       // predicate register
  bool guard_negated = false;
  std::vector<Operand> operands;        // of call: callee, vector of results, vector of arguments
  std::vector<int> targets;             // of bra: one instruction; of brx.idx: its table
};

// What a device function takes or returns: bytes of its frame, or a register.
struct Formal {
  std::string name;
  const Variable* variable = nullptr;
  int register_index = -1;
  Type type = Type::kNone;
};

// Variables of a thread (.local, and .param within a function) lie in a frame; an entry has one, a
// device function one for every call.
struct Function {
  std::string name;
  bool is_entry = false;
  int line = 0;
  std::vector<Type> registers;          // type of each
  std::vector<const Variable*> parameters;  // of an entry
  uint64_t parameter_bytes = 0;
  std::vector<Formal> inputs;           // of a device function
  std::vector<Formal> outputs;
  std::vector<Variable*> shared;        // static variables of an entry
  uint64_t shared_bytes = 0;            // of these and of the module
  uint64_t local_bytes = 0;             // of a frame
  uint32_t dynamic_alignment = 1;       // of dynamic shared memory
  uint32_t threads_limit = 1024;        // .maxntid or .reqntid
  bool bounds_threads = false;          // it has one of them
  uint32_t min_ctas = 1;                // .minnctapersm: CTAs that an SM has to hold
  uint32_t register_limit = 0;          // .maxnreg: registers of a thread; 0: there is none
  uint32_t required_cluster[3] = {0, 0, 0};  // .reqnctapercluster
  bool blocks_are_clusters = false;          // a launch gives the grid in clusters
  std::vector<Instruction> code;        // ends with a "ret"
  std::map<std::string, std::vector<std::string>> branch_tables;
};

// The text of a line of CUDA source, and the line of a script that it was generated from.
struct SourceText {
  std::string cuda;
  std::string script;  // "gemm.py:7 full.wait(0, k % 2)"
};

struct Module {
  std::string target;                   // such as "sm_90a"
  std::map<int, std::string> files;     // names of source files
  std::map<int, SourceText> source;     // lines of generated source, see source_text.h
  std::vector<Function> functions;
  std::vector<const Variable*> globals;
  uint64_t global_bytes = 0;
  uint64_t shared_bytes = 0;            // static shared variables of the module
  uint64_t registers = 0;               // of all functions
  // Owned through pointers, since operands point to them.
  std::vector<std::unique_ptr<Variable>> variables;

  // Names of functions that are declared and may be the system's.
  std::set<std::string> declarations;
  bool declares(const std::string& name) const { return declarations.count(name) != 0; }

  // Index of a function that has a body; -1 if there is none.
  int find_function(const std::string& name) const;
  void add_function(Function function);

  std::unordered_map<std::string, int> function_numbers;
};

// "kernel.cu:12" or, for code that was inlined, "helpers.h:7, inlined at kernel.cu:12", with the
// text of that line where it is known; "kernel.cu:12, script gemm.py:7 text" where the line of the
// script is; empty where the PTX has no line information.
std::string describe_origin(const Module& module, const Instruction& instruction);

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_MODULE_H_
