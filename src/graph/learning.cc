#include "graph/learning.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "graph/watch.h"

namespace warploom::graph {
namespace {

constexpr std::string_view kBuiltin = "vm.builtin.";
constexpr std::string_view kCache = "vm.builtin.attention_kv_cache_";
constexpr std::string_view kAllocate = "vm.builtin.alloc_storage";
constexpr std::string_view kGraphs = "vm.builtin.cuda_graph.";
constexpr const char* kNoInstrument = "warploom.graph.no_instrument";

// What follows from arguments alone, and leaves nothing on the host to be done at each call.
constexpr std::string_view kOfArguments[] = {
    "alloc_shape_heap", "alloc_storage", "alloc_tensor", "call_tir_dyn", "check_func_info",
    "check_prim_value_info", "check_shape_info", "check_tensor_info", "check_tuple_info", "copy",
    "ensure_zero_offset", "make_prim_value", "make_shape", "make_tuple", "match_prim_value",
    "match_shape", "null_value", "reshape", "shape_of", "tuple_getitem", "tuple_reset_item",
};

// Calls of a cache that change nothing but memory of the device.
constexpr std::string_view kOfCaches[] = {
    "append_mla_kv", "attention_with_fused_qkv", "attention_with_shared_kv", "cross_attention",
    "get_query_positions", "merge_attn_output_inplace", "self_attention",
};

template <size_t n>
bool has(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool starts_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

// Why a function that calls this is no graph, or nothing.
std::string hindrance(std::string_view name) {
  const std::string quoted = "it calls " + std::string(name);
  if (starts_with(name, kGraphs)) {
    return quoted + ": it has graphs already; build without relax.backend.use_cuda_graph";
  }
  if (starts_with(name, kCache) && has(kOfCaches, name.substr(kCache.size()))) return "";
  if (starts_with(name, kBuiltin)) {
    if (has(kOfArguments, name.substr(kBuiltin.size()))) return "";
    return quoted + ", which needs the host at each call; call it outside of the function";
  }
  if (Function::GetGlobal(std::string(name)).has_value()) {
    return quoted + ", which is outside of the model and may work on the host, which a graph would "
                    "leave out; call it outside of the function";
  }
  return "";
}

class Instrument {
 public:
  Instrument(PackedArgs arguments, Lesson* lesson)
      : objects_(identities(arguments)), lesson_(lesson) {}

  // Arguments of an instrument: the function, its name, whether it is yet to run, its result, and
  // its arguments.
  void operator()(PackedArgs packed) {
    if (packed.size() < 4 || !packed[2].cast<bool>()) return;
    ++count_;
    const auto name = packed[1].cast<tvm::ffi::String>();
    const std::string_view text(name.data(), name.size());
    lesson_->allocations += text == kAllocate;
    if (lesson_->declined.empty()) lesson_->declined = hindrance(text);
    if (!lesson_->declined.empty() || !starts_with(text, kCache)) return;
    lesson_->keeps_results |= text.substr(kCache.size()) == "get_query_positions";
    add_call(name, packed.Slice(4));
  }

  bool has_seen_any() const { return count_ > 0; }

 private:
  void add_call(const tvm::ffi::String& name, PackedArgs arguments) {
    if (arguments.size() == 0 || !is_watched_cache(raw(arguments)[0])) {
      lesson_->declined =
          "its KV cache transfers keys and values, or has kernels that are not of TVM's IR, or was "
          "not made by TVM's function for caches";
      return;
    }
    CacheCall call{Function::GetGlobalRequired(name), {}};
    for (int i = 0; i < arguments.size(); ++i) {
      call.arguments.emplace_back(Any(arguments[i]), objects_);
    }
    lesson_->calls.push_back(std::move(call));
  }

  std::vector<const void*> objects_;
  Lesson* lesson_;
  int count_ = 0;
};

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      kNoInstrument, [] { return Function(nullptr); },
      "By its name, a virtual machine gets no instrument.");
}

}  // namespace

Lesson learn(const Function& function, const Function& set_instrument, PackedArgs arguments,
             Any* result) {
  Lesson lesson;
  Instrument instrument(arguments, &lesson);
  set_instrument(
      Function::FromPacked([&](PackedArgs packed, Any*) { instrument(packed); }));
  try {
    function.CallPacked(arguments, result);
  } catch (...) {
    set_instrument(kNoInstrument);
    throw;
  }
  set_instrument(kNoInstrument);
  if (!instrument.has_seen_any()) {
    lesson.declined = "its calls cannot be seen; build it with exec_mode=\"bytecode\"";
  }
  return lesson;
}

}  // namespace warploom::graph
