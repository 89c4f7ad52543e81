// What a function is given while its work is captured.

#ifndef WARPLOOM_GRAPH_CAPTURING_H_
#define WARPLOOM_GRAPH_CAPTURING_H_

#include <cstdint>
#include <vector>

#include "graph/record.h"
#include "graph/watch.h"

namespace warploom::graph {

// Memory of graphs that run one after the other, and so share it: by the place of an allocation
// among those of a call.
class Pool {
 public:
  // In the place of vm.builtin.alloc_storage, given that function.
  Any allocate(size_t place, const Function& stock, PackedArgs arguments);
  void clear() { allocations_.clear(); }

 private:
  struct Allocation {
    Words kind;
    uint64_t bytes = 0;
    Any storage;
  };
  std::vector<Allocation> allocations_;
};

// Index arrays of caches become their copies; memory comes from the pool, and is kept.
class Capturing : public Watcher {
 public:
  // The record is of the calls to come; the copies are at an address.
  Capturing(const Record& record, char* copies, Pool& pool)
      : record_(record), copies_(copies), pool_(pool) {}

  // Both throw if the calls are others than those recorded.
  void call(const CacheKernel& kernel, PackedArgs arguments, Any* result) override;
  void finish(int allocations) const;

  void allocate(const Function& stock, PackedArgs arguments, Any* result) override;

  const std::vector<Any>& memory() const { return memory_; }

 private:
  const Record& record_;
  char* copies_;
  Pool& pool_;
  std::vector<Any> memory_;
  size_t kernels_ = 0;
};

}  // namespace warploom::graph

#endif  // WARPLOOM_GRAPH_CAPTURING_H_
