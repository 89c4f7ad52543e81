#include "emulator/ptx/parser.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/exec/fault.h"
#include "emulator/ptx/body.h"
#include "emulator/ptx/cursor.h"
#include "emulator/ptx/declaration.h"
#include "emulator/ptx/line_info.h"
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
      for (Variable* variable : function.shared) place(*variable, function.shared_bytes);
    }
  }

  // ".target sm_90a, debug": every architecture has the same instructions here.
  void target() {
    cursor_.next();
    std::string_view name = cursor_.word();
    if (name.substr(0, 3) != "sm_" || name.size() < 5) {
      fault("line %d: '%.*s' is not a target architecture such as sm_90a", cursor_.line(),
            static_cast<int>(name.size()), name.data());
    }
    module_->target = std::string(name);
    cursor_.skip_line();
  }

  void variable() {
    for (auto& declared : parse_variables(cursor_)) {
      if (declared->space == Space::kShared) {
        place(*declared, module_->shared_bytes);
      } else {
        place(*declared, module_->global_bytes);
        module_->globals.push_back(declared.get());
      }
      names_[declared->name] = declared.get();
      module_->variables.push_back(std::move(declared));
    }
  }

  void function() {
    Function result;
    result.is_entry = cursor_.next().is(".entry");
    Names names = names_;
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
    parse_body(cursor_, names, *module_, result);
    module_->functions.push_back(std::move(result));
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
      place(*parameter, result.parameter_bytes);
      result.parameters.push_back(parameter.get());
      names[parameter->name] = parameter.get();
      module_->variables.push_back(std::move(parameter));
      cursor_.accept(',');
    }
  }

  void attributes(Function& result) {
    while (cursor_.peek().kind == Token::kWord) {
      std::string_view name = cursor_.word();
      if (name == ".maxntid" || name == ".reqntid") {
        result.threads_limit = 1;
        for (uint64_t n : cursor_.numbers()) result.threads_limit *= static_cast<uint32_t>(n);
      } else if (name == ".reqnctapercluster") {
        std::vector<uint64_t> numbers = cursor_.numbers();
        for (std::size_t i = 0; i < 3; ++i) {
          result.required_cluster[i] = i < numbers.size() ? static_cast<uint32_t>(numbers[i]) : 1;
        }
      } else if (name == ".minnctapersm" || name == ".maxnreg" || name == ".maxclusterrank" ||
                 name == ".maxnctapersm") {
        cursor_.numbers();  // limits of registers and of occupancy, which nothing here depends on
      } else if (name == ".pragma") {
        while (!cursor_.next().is(';')) {
        }
      } else if (name == ".attribute") {
        cursor_.skip_parentheses();
      } else if (name == ".blocksareclusters") {
        result.blocks_are_clusters = true;
      } else if (name != ".explicitcluster" && name != ".noreturn") {
        fault("line %d: unknown attribute '%.*s' of function %s", cursor_.line(),
              static_cast<int>(name.size()), name.data(), result.name.c_str());
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

std::unique_ptr<Module> parse(std::string_view source) { return Parser(source).run(); }

}  // namespace warploom::emulator::ptx
