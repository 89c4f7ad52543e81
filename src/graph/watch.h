// Watches what a call of a compiled model does through TVM's paged KV caches and its allocator.
//
// The kernels of a cache are arguments of the function that makes it, and the allocator of a model
// is a function by name. Both are put behind functions of this file, which do nothing but call them
// unless the thread has a watcher.

#ifndef WARPLOOM_GRAPH_WATCH_H_
#define WARPLOOM_GRAPH_WATCH_H_

#include <tvm/ffi/object.h>

#include <cstdint>

#include "graph/value.h"

namespace warploom::graph {

// A kernel that a cache was made with.
struct CacheKernel {
  Function function;
  int64_t number;  // no other kernel of any cache has it
  int pages_at;    // which argument has the indices of pages, of which each sequence names its own
                   // by offsets in another; -1 if none
};

class Watcher {
 public:
  virtual ~Watcher() = default;
  // In the place of a call of the kernel.
  virtual void call(const CacheKernel& kernel, PackedArgs arguments, Any* result) = 0;
  // In the place of vm.builtin.alloc_storage, given that function.
  virtual void allocate(const Function& stock, PackedArgs arguments, Any* result) = 0;
};

// The watcher of this thread while the object lives.
class Watching {
 public:
  explicit Watching(Watcher* watcher);
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
  static bool is_on();
};

// Whether a cache was made with kernels that are all watched.
bool is_watched_cache(const TVMFFIAny& argument);

}  // namespace warploom::graph

#endif  // WARPLOOM_GRAPH_WATCH_H_
