#include "graph/watch.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace warploom::graph {
namespace {

using tvm::ffi::Array;
using tvm::ffi::Object;
using tvm::ffi::ObjectPtr;
using tvm::ffi::ObjectRef;
using tvm::ffi::WeakObjectPtr;

thread_local Watcher* watcher = nullptr;

// Arguments of vm.builtin.paged_attention_kv_cache_create. A kernel of TVM's IR takes what
// runtime/vm/attn_backend.h passes to it.
constexpr int kTransfers = 7;
struct Slot {
  int argument;
  int pages_at;
};
constexpr Slot kSlots[] = {
    {13, -1}, {14, -1},  // append keys and values
    {15, -1},            // attention to new tokens
    {16, 4}, {18, 4},    // attention to pages: q, its offsets, pages, their offsets, their indices
    {17, 3}, {19, 3},    // decode attention: q, pages, their offsets, their indices
    {20, -1}, {21, -1},  // trees of tokens
    {22, 4},             // latent attention to pages, with the arguments of 16
    {23, -1},            // merge results
    {24, -1},            // rotary embedding
};
// What stands before a kernel of TVM's IR, in arrays that name who made it.
constexpr const char* kOfTvm = "tirx";

// The caches whose kernels are all watched. A cache that is gone leaves its entry, which the next
// cache removes.
class Watched {
 public:
  void add(const ObjectRef& cache) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<WeakObjectPtr<Object>> alive;
    for (const auto& one : caches_) {
      if (!one.expired()) alive.push_back(one);
    }
    caches_ = std::move(alive);
    caches_.emplace_back(tvm::ffi::details::ObjectUnsafe::ObjectPtrFromObjectRef<Object>(cache));
  }

  bool has(const void* cache) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& one : caches_) {
      if (one.lock().get() == cache) return cache != nullptr;
    }
    return false;
  }

 private:
  std::mutex mutex_;
  std::vector<WeakObjectPtr<Object>> caches_;
};

Watched& watched() {
  static auto* caches = new Watched;  // never destroyed: caches outlive static objects
  return *caches;
}

Function watched_kernel(Function function, int pages_at) {
  static std::atomic<int64_t> numbers{0};
  CacheKernel kernel{std::move(function), numbers++, pages_at};
  return Function::FromPacked([kernel](PackedArgs arguments, Any* result) {
    if (watcher == nullptr) {
      kernel.function.CallPacked(arguments, result);
    } else {
      watcher->call(kernel, arguments, result);
    }
  });
}

// A function, an array of functions, or an array of a name and functions. Clears the flag if
// anything in it is not watched.
Any watched_argument(AnyView argument, int pages_at, bool* all) {
  if (auto function = argument.as<Function>()) return watched_kernel(*function, pages_at);
  auto array = argument.as<Array<Any>>();
  if (!array.has_value()) return argument;  // no kernel
  Array<Any> made;
  for (const Any& one : *array) {
    if (auto function = one.as<Function>()) {
      made.push_back(watched_kernel(*function, pages_at));
    } else {
      made.push_back(one);
      auto name = one.as<tvm::ffi::String>();
      if (!name.has_value() || *name != kOfTvm) *all = false;
    }
  }
  return made;
}

Function watched_create(Function stock) {
  return Function::FromPacked([stock](PackedArgs packed, Any* result) {
    std::vector<AnyView> arguments(packed.data(), packed.data() + packed.size());
    std::vector<Any> made;
    made.reserve(std::size(kSlots));
    bool all = packed.size() > 27;
    for (const Slot& slot : kSlots) {
      if (slot.argument >= packed.size()) continue;
      made.push_back(watched_argument(arguments[slot.argument], slot.pages_at, &all));
      arguments[slot.argument] = made.back();
    }
    stock.CallPacked(PackedArgs(arguments.data(), packed.size()), result);
    auto cache = result->as<ObjectRef>();
    if (all && !packed[kTransfers].cast<bool>() && cache.has_value()) watched().add(*cache);
  });
}

Function watched_allocation(Function stock) {
  return Function::FromPacked([stock](PackedArgs arguments, Any* result) {
    if (watcher == nullptr) {
      stock.CallPacked(arguments, result);
    } else {
      watcher->allocate(stock, arguments, result);
    }
  });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("warploom.graph.watched_create", watched_create,
           "vm.builtin.paged_attention_kv_cache_create with kernels that can be watched, given it.")
      .def("warploom.graph.watched_allocation", watched_allocation,
           "vm.builtin.alloc_storage that can be watched, given it.");
}

}  // namespace

Watching::Watching(Watcher* one) { watcher = one; }
Watching::~Watching() { watcher = nullptr; }
bool Watching::is_on() { return watcher != nullptr; }

bool is_watched_cache(const TVMFFIAny& argument) {
  return argument.type_index >= kTVMFFIStaticObjectBegin && watched().has(argument.v_obj);
}

}  // namespace warploom::graph
