// PTX modules in the form that is executed, kept by content: loading the same text again, as TVM
// does for every test and every reload of a library, costs nothing.

#ifndef WARPLOOM_EMULATOR_EXEC_LAUNCH_DECODED_MODULE_H_
#define WARPLOOM_EMULATOR_EXEC_LAUNCH_DECODED_MODULE_H_

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/exec/launch/reach.h"
#include "emulator/exec/machine/program.h"

namespace warploom::emulator {

// Nothing in it changes once it is made, and nothing depends on the device.
class DecodedModule {
 public:
  // Parses and decodes all entry functions; a Fault names what is not supported.
  explicit DecodedModule(std::string_view ptx);

  const ptx::Module& source() const { return *module_; }
  const Program* find(const std::string& name) const;  // nullptr if there is none
  std::vector<std::string> kernel_names() const;

 private:
  void check_instructions(CallGraph& calls) const;

  std::unique_ptr<const ptx::Module> module_;
  std::map<std::string, std::unique_ptr<const Program>> programs_;
};

class DecodedModules {
 public:
  // Text of PTX that is kept, in bytes. A decoded module takes some twenty times as much.
  static constexpr std::size_t kMostBytes = 16 << 20;

  std::shared_ptr<const DecodedModule> find(std::string_view ptx);

 private:
  std::unordered_map<std::string, std::shared_ptr<const DecodedModule>> modules_;
  std::deque<std::string> oldest_;  // keys of modules_ in the order of their first use
  std::size_t bytes_ = 0;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_LAUNCH_DECODED_MODULE_H_
