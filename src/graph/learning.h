// What a function of TVM's virtual machine calls, seen by running it once as it is.

#ifndef WARPLOOM_GRAPH_LEARNING_H_
#define WARPLOOM_GRAPH_LEARNING_H_

#include <string>
#include <vector>

#include "graph/value.h"

namespace warploom::graph {

// A call of a KV cache by the function.
struct CacheCall {
  Function function;
  std::vector<Value> arguments;
};

struct Lesson {
  std::vector<CacheCall> calls;
  int allocations = 0;
  bool keeps_results = false;  // whether tensors of caches are read by other kernels
  std::string declined;        // why the function is no graph; empty if it may be
};

// Runs the function, with an instrument in its machine, given the function that sets one.
Lesson learn(const Function& function, const Function& set_instrument, PackedArgs arguments,
             Any* result);

}  // namespace warploom::graph

#endif  // WARPLOOM_GRAPH_LEARNING_H_
