// Calls of a function of a compiled model, each as one CUDA graph.
//
// A graph replays launches with the arguments that they had when it was captured. What may have
// changed since then is compared at each call: the arguments of the function, and all that the
// caches among them would pass to their kernels. The latter is found by making the calls of the
// caches anew while their kernels only record what they are given, which takes about a microsecond
// a kernel and brings the caches' index arrays to the device, as the function itself would.

#ifndef WARPLOOM_GRAPH_CALL_GRAPH_H_
#define WARPLOOM_GRAPH_CALL_GRAPH_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/object.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/capturing.h"
#include "graph/cuda_api.h"
#include "graph/learning.h"
#include "graph/record.h"

namespace warploom::graph {

struct Graph {
  std::shared_ptr<void> executable;  // none if its key has been seen but once
  std::string declined;              // why there will be none
  DeviceMemory copies;               // of index arrays
  std::vector<Any> memory;           // what its kernels use
  Value result;
  uint64_t used = 0;
};

// Calls whose arguments have the same form.
struct Form {
  bool is_learned = false;
  Lesson lesson;
  std::vector<tvm::ffi::WeakObjectPtr<tvm::ffi::Object>> objects;
  std::vector<const void*> addresses;                   // of tensors, when they came last
  std::vector<std::optional<tvm::ffi::Tensor>> copies;  // of tensors whose address has changed
  std::map<Words, Graph> graphs;
  uint64_t used = 0;

  bool is_gone() const;
};

class CallGraph {
 public:
  // The function, and the one of its machine that sets an instrument.
  CallGraph(Function function, Function set_instrument);

  void run(PackedArgs arguments, Any* result);

  // Forgets all graphs and gives their memory back.
  void clear();

  int64_t captures = 0;
  int64_t replays = 0;
  int64_t others = 0;    // calls without a graph
  std::string declined;  // why the last of these had none, if none like it will

 private:
  Form* form_of(PackedArgs arguments);
  void add_objects(Form& form, PackedArgs arguments);
  void note_addresses(Form& form, PackedArgs arguments);
  Record probe(const Form& form, PackedArgs arguments) const;
  void capture(Form& form, const Record& record, PackedArgs arguments, Graph* graph);
  void replay(Form& form, const Record& record, PackedArgs arguments, Graph* graph, Any* result);
  void run_plainly(PackedArgs arguments, Any* result, const std::string& why);
  Graph* graph_of(Form& form, const Words& key, bool* is_new);

  Function function_, set_instrument_;
  std::map<Words, Form> forms_;
  Pool pool_;
  std::optional<Event> read_;  // the index arrays of caches may be overwritten
  uint64_t clock_ = 0;
};

}  // namespace warploom::graph

#endif  // WARPLOOM_GRAPH_CALL_GRAPH_H_
