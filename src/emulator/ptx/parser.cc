#include "emulator/ptx/parser.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/base/device.h"
#include "emulator/base/fault.h"
#include "emulator/ptx/body.h"
#include "emulator/ptx/cursor.h"
#include "emulator/ptx/declaration.h"
#include "emulator/ptx/limits.h"
#include "emulator/ptx/line_info.h"
#include "emulator/ptx/sizes.h"
#include "emulator/ptx/source_text.h"

namespace warploom::emulator::ptx {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view source)
      : source_(source), cursor_(tokenize(source)), module_(new Module) {}

  std::unique_ptr<Module> run() {
    while (cursor_.peek().kind != Token::kEnd) item();
    place_shared();
    read_source_text(source_, *module_);
    return std::move(module_);
  }

 private:
  void item() {
    const Token& token = cursor_.peek();
    if (token.kind != Token::kWord) cursor_.fail("a directive");
    if (token.is(".target")) {
      target();
    } else if (token.is(".file")) {
      parse_file(cursor_, *module_);
    } else if (token.is(".version") || token.is(".address_size")) {
      cursor_.skip_line();
    } else if (token.is(".section")) {
      while (!cursor_.peek().is('{')) cursor_.next();
      cursor_.skip_braces();
    } else if (token.is(".pragma")) {
      while (!cursor_.next().is(';')) {
      }
    } else if (token.is(".visible") || token.is(".extern") || token.is(".weak") ||
               token.is(".common")) {
      cursor_.next();
    } else if (token.is(".entry") || token.is(".func")) {
      function();
    } else {
      variable();
    }
  }

  // Static shared variables of an entry lie behind those of the module, which all functions see.
  void place_shared() {
    for (Function& function : module_->functions) {
      function.shared_bytes = module_->shared_bytes;
      for (Variable* variable : function.shared) {
        place(*variable, function.shared_bytes, kSharedSpace);
      }
    }
  }

  // ".target sm_90a, debug": every architecture has the same instructions here.
  void target() {
    cursor_.next();
    std::string_view name = cursor_.word();
    if (name.substr(0, 3) != "sm_" || name.size() < 5) {
      fault("line %d: '%s' is not a target architecture such as sm_90a", cursor_.line(),
            shown(name).c_str());
    }
    module_->target = std::string(name);
    cursor_.skip_line();
  }

  void variable() {
    for (auto& declared : parse_variables(cursor_)) {
      if (declared->space == Space::kShared) {
        place(*declared, module_->shared_bytes, kSharedSpace);
      } else if (declared->space == Space::kLocal || declared->space == Space::kParam) {
        fault("line %d: '%s' is not in a function; .local and .param variables have to be",
              declared->line, declared->name.c_str());
      } else {
        place(*declared, module_->global_bytes, kGlobalSpace);
        module_->globals.push_back(declared.get());
      }
      names_[declared->name] = declared.get();
      module_->variables.push_back(std::move(declared));
    }
  }

  void function() {
    Function result;
    result.is_entry = cursor_.next().is(".entry");
    Names names;  // of its parameters
    bool has_outputs = cursor_.peek().is('(');
    if (has_outputs) formals(result, result.outputs, names);
    result.line = cursor_.peek().line;
    result.name = std::string(cursor_.word());
    if (cursor_.peek().is('(')) {
      if (result.is_entry) {
        parameters(result, names);
      } else {
        formals(result, result.inputs, names);
      }
    }
    attributes(result);
    if (cursor_.accept(';')) {
      module_->declarations.insert(result.name);
      return;
    }
    if (module_->find_function(result.name) >= 0) {
      fault("line %d: the function %s is defined twice", result.line, result.name.c_str());
    }
    parse_body(cursor_, names_, names, *module_, result);
    module_->add_function(std::move(result));
  }

  void formals(Function& result, std::vector<Formal>& list, Names& names) {
    cursor_.expect('(');
    while (!cursor_.accept(')')) {
      list.push_back(parse_formal(cursor_, *module_, result));
      const Formal& formal = list.back();
      if (formal.variable != nullptr) names[formal.name] = formal.variable;
      cursor_.accept(',');
    }
  }

  void parameters(Function& result, Names& names) {
    cursor_.expect('(');
    while (!cursor_.accept(')')) {
      std::unique_ptr<Variable> parameter = parse_parameter(cursor_);
      place(*parameter, result.parameter_bytes, kParameterSpace);
      result.parameters.push_back(parameter.get());
      names[parameter->name] = parameter.get();
      module_->variables.push_back(std::move(parameter));
      cursor_.accept(',');
    }
  }

  // Up to three numbers whose product is 1 to `most`.
  uint64_t product(std::string_view name, uint64_t most, std::vector<uint64_t>* factors = nullptr) {
    const int line = cursor_.line();
    std::vector<uint64_t> numbers = cursor_.numbers(3);
    uint64_t result = 1;
    for (uint64_t number : numbers) result = multiply_sizes(result, number);
    if (result == 0 || result > most) {
      std::string text = std::to_string(numbers[0]);
      for (std::size_t i = 1; i < numbers.size(); ++i) text += " x " + std::to_string(numbers[i]);
      fault("line %d: %s is %s; a product of 1 to %llu is allowed", line,
            std::string(name).c_str(), text.c_str(), static_cast<unsigned long long>(most));
    }
    if (factors != nullptr) *factors = std::move(numbers);
    return result;
  }

  void clusters(Function& result) {
    std::vector<uint64_t> numbers;
    product(".reqnctapercluster", kMaxClusterSize, &numbers);
    for (std::size_t i = 0; i < 3; ++i) {
      result.required_cluster[i] = i < numbers.size() ? static_cast<uint32_t>(numbers[i]) : 1;
    }
  }

  void attributes(Function& result) {
    while (cursor_.peek().kind == Token::kWord) {
      std::string_view name = cursor_.word();
      if (name == ".maxntid" || name == ".reqntid") {
        uint64_t threads = product(name, kMaxThreads);
        result.threads_limit = static_cast<uint32_t>(threads);
        result.bounds_threads = true;
      } else if (name == ".reqnctapercluster") {
        clusters(result);
      } else if (name == ".minnctapersm") {
        const uint64_t ctas = cursor_.numbers(1)[0];
        result.min_ctas = static_cast<uint32_t>(std::min<uint64_t>(ctas, kMaxCtasPerSm));
      } else if (name == ".maxnreg") {
        const uint64_t count = cursor_.numbers(1)[0];
        result.register_limit = static_cast<uint32_t>(std::min<uint64_t>(count, kMaxThreadRegisters));
      } else if (name == ".maxclusterrank" || name == ".maxnctapersm") {
        cursor_.numbers(3);  // limits of occupancy, which nothing here depends on
      } else if (name == ".pragma") {
        while (!cursor_.next().is(';')) {
        }
      } else if (name == ".attribute") {
        cursor_.skip_parentheses();
      } else if (name == ".blocksareclusters") {
        result.blocks_are_clusters = true;
      } else if (name != ".explicitcluster" && name != ".noreturn") {
        fault("line %d: unknown attribute '%s' of function %s", cursor_.line(),
              shown(name).c_str(), result.name.c_str());
      }
    }
    if (result.blocks_are_clusters && result.required_cluster[0] == 0) {
      fault("line %d: .blocksareclusters of function %s needs .reqnctapercluster", cursor_.line(),
            result.name.c_str());
    }
  }

  std::string_view source_;
  Cursor cursor_;
  std::unique_ptr<Module> module_;
  Names names_;
};

}  // namespace

std::unique_ptr<Module> parse(std::string_view source) {
  if (source.size() > kMostTextBytes) {
    fault("the PTX has %zu bytes; at most %zu are allowed", source.size(), kMostTextBytes);
  }
  return Parser(source).run();
}

}  // namespace warploom::emulator::ptx
