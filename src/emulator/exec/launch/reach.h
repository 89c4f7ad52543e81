// Which functions belong to a program.

#ifndef WARPLOOM_EMULATOR_EXEC_LAUNCH_REACH_H_
#define WARPLOOM_EMULATOR_EXEC_LAUNCH_REACH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "emulator/exec/machine/program.h"
#include "emulator/ptx/module.h"

namespace warploom::emulator {

// Who calls whom in a module. It is made once; everything takes time in proportion to what it
// returns, or to the module.
class CallGraph {
 public:
  // The module has to outlive it.
  explicit CallGraph(const ptx::Module& module);

  // The entry first, then every function that it can call, directly or through a pointer. Of each
  // `source`, `index` and `recursive` are set.
  std::vector<ProgramFunction> reachable(const ptx::Function& entry);
  // Instructions of all of these; counts no further than to `most` and some.
  uint64_t count_instructions(const ptx::Function& entry, uint64_t most);

 private:
  // Calls visit(index) for the entry and every function that it can reach, until that is false.
  template <class Visit>
  void walk(const ptx::Function& entry, Visit visit);
  void add_edges(int from, const ptx::Function& function);
  void add_edge(int from, const std::string& to);
  void find_cycles();

  const ptx::Module& module_;
  int pointers_;                         // a node of its own: calls through pointers go there
  std::vector<std::vector<int>> edges_;  // by function; from pointers_ to all whose address is used
  std::vector<char> recursive_;          // whether a call that it makes may lead to it again
  std::vector<int> seen_;                // number of the walk that has visited it last
  int walks_ = 0;
};

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_EXEC_LAUNCH_REACH_H_
