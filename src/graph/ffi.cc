// Makes the graphs of calls available to Python.

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <memory>
#include <utility>

#include "graph/call_graph.h"

namespace warploom::graph {
namespace {

using tvm::ffi::Array;
using tvm::ffi::String;

// The function that calls by graphs, the one that forgets them, and the one that counts.
Array<Function> graphs_of(Function function, Function set_instrument) {
  auto calls = std::make_shared<CallGraph>(std::move(function), std::move(set_instrument));
  return {
      Function::FromPacked(
          [calls](PackedArgs arguments, Any* result) { calls->run(arguments, result); }),
      Function::FromTyped([calls] { calls->clear(); }),
      Function::FromTyped([calls] {
        return Array<Any>{calls->captures, calls->replays, calls->others, String(calls->declined)};
      }),
  };
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      "warploom.graph.graphs_of", graphs_of,
      "Calls of a function of a virtual machine as graphs, given it and set_instrument.");
}

}  // namespace
}  // namespace warploom::graph
