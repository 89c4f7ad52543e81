// libcuda.so.1 of the emulator: graphs, but for their nodes (libcuda_node.cc).

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/graph.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/stream.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

// CUDA_GRAPH_INSTANTIATE_PARAMS and CUgraphExecUpdateResultInfo.
struct InstantiateParameters {
  unsigned long long flags;
  void* upload_stream;
  void* problem_node;
  int result;
};

struct UpdateResult {
  int result;
  void* problem_node;
  void* problem_from;
};

template <class F>
int with_graph(const void* handle, F f) {
  return guarded(abi::kInvalidValue, [&] {
    std::shared_ptr<Graph> graph = graphs().find(handle);
    return graph == nullptr ? fail(abi::kInvalidValue, "there is no such graph") : f(graph);
  });
}

// Handles of nodes, as programs ask for them: the number, then a list with room for so many.
int put_nodes(const std::vector<const Node*>& nodes, void** handles, std::size_t* count) {
  if (count == nullptr) return abi::kInvalidValue;
  if (handles == nullptr) {
    *count = nodes.size();
    return abi::kSuccess;
  }
  for (std::size_t i = 0; i < *count; ++i) {
    handles[i] = i < nodes.size() ? nodes[i]->handle : nullptr;
  }
  *count = std::min(*count, nodes.size());
  return abi::kSuccess;
}

// An object of the program, which is told when nothing uses it any more.
struct UserObject {
  void* pointer;
  abi::HostFunction destroy;
  UserObject(void* object, abi::HostFunction told) : pointer(object), destroy(told) {}
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;
  ~UserObject() { destroy(pointer); }
};

// What a handle stands for: graphs may use the object when the program has no reference any more.
struct UserReference {
  std::weak_ptr<UserObject> object;
  std::shared_ptr<UserObject> own;  // while the program has references
  unsigned count;
};

Handles<UserReference>& user_objects() {
  static auto* handles = new Handles<UserReference>;
  return *handles;
}

int drop(void* handle, unsigned count) {
  std::shared_ptr<UserReference> reference = user_objects().find(handle);
  if (reference == nullptr || count == 0 || reference->count < count) return abi::kInvalidValue;
  reference->count -= count;
  if (reference->count == 0) reference->own.reset();
  if (reference->object.expired()) user_objects().remove(handle);
  return abi::kSuccess;
}

}  // namespace

WARPLOOM_CUDA_API int cuGraphCreate(void** graph, unsigned) {
  if (graph == nullptr) return abi::kInvalidValue;
  return guarded(abi::kOutOfMemory, [&] {
    *graph = graphs().add(std::make_shared<Graph>());
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuGraphDestroy(void* handle) {
  return with_graph(handle, [&](const std::shared_ptr<Graph>&) {
    graphs().remove(handle);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuGraphClone(void** clone, void* handle) {
  if (clone == nullptr) return abi::kInvalidValue;
  return with_graph(handle, [&](const std::shared_ptr<Graph>& graph) {
    *clone = graphs().add(copy_graph(*graph));
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuGraphGetNodes(void* handle, void** nodes, std::size_t* count) {
  return with_graph(handle, [&](const std::shared_ptr<Graph>& graph) {
    std::vector<const Node*> all;
    for (const auto& node : graph->nodes) all.push_back(node.get());
    return put_nodes(all, nodes, count);
  });
}

WARPLOOM_CUDA_API int cuGraphGetRootNodes(void* handle, void** nodes, std::size_t* count) {
  return with_graph(handle, [&](const std::shared_ptr<Graph>& graph) {
    std::vector<const Node*> roots;
    for (const auto& node : graph->nodes) {
      if (node->needs.empty()) roots.push_back(node.get());
    }
    return put_nodes(roots, nodes, count);
  });
}

WARPLOOM_CUDA_API int cuGraphGetEdges(void* handle, void** from, void** to, std::size_t* count) {
  return with_graph(handle, [&](const std::shared_ptr<Graph>& graph) {
    std::vector<const Node*> needed, needing;
    for (const auto& [first, second] : graph->edges()) {
      needed.push_back(first);
      needing.push_back(second);
    }
    std::size_t room = count == nullptr ? 0 : *count;
    put_nodes(needed, from, &room);
    return put_nodes(needing, to, count);
  });
}

// Edges have no data.
WARPLOOM_CUDA_API int cuGraphGetEdges_v2(void* graph, void** from, void** to, void*,
                                         std::size_t* count) {
  return cuGraphGetEdges(graph, from, to, count);
}

WARPLOOM_CUDA_API int cuGraphInstantiateWithFlags(void** program, void* handle,
                                                  unsigned long long) {
  if (program == nullptr) return abi::kInvalidValue;
  return with_graph(handle, [&](const std::shared_ptr<Graph>& graph) {
    std::shared_ptr<GraphProgram> made = instantiate(*graph);
    if (made == nullptr) return fail(abi::kInvalidValue, "nodes of the graph need each other");
    *program = graph_programs().add(std::move(made));
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuGraphInstantiateWithParams(void** program, void* graph,
                                                   InstantiateParameters* parameters) {
  if (parameters == nullptr) return abi::kInvalidValue;
  const int code = cuGraphInstantiateWithFlags(program, graph, parameters->flags);
  parameters->problem_node = nullptr;
  parameters->result = code == abi::kSuccess ? 0 : 1;
  return code;
}

WARPLOOM_CUDA_API int cuGraphUpload(void* program, void*) {
  return guarded(abi::kInvalidValue, [&] {
    return graph_programs().find(program) != nullptr ? abi::kSuccess : abi::kInvalidValue;
  });
}

WARPLOOM_CUDA_API int cuGraphLaunch(void* handle, void* stream) {
  return guarded(abi::kLaunchFailed, [&] {
    std::shared_ptr<GraphProgram> program = graph_programs().find(handle);
    if (program == nullptr) return fail(abi::kInvalidValue, "there is no such graph");
    if (!is_stream(stream)) return fail(abi::kInvalidHandle, "there is no such stream");
    return submit(stream, NodeKind::kGraph, [program] { return program->execute(); });
  });
}

WARPLOOM_CUDA_API int cuGraphExecDestroy(void* program) {
  return guarded(abi::kInvalidValue, [&] {
    return graph_programs().remove(program) != nullptr ? abi::kSuccess : abi::kInvalidValue;
  });
}

WARPLOOM_CUDA_API int cuGraphExecGetFlags(void*, unsigned long long* flags) {
  if (flags == nullptr) return abi::kInvalidValue;
  *flags = 0;
  return abi::kSuccess;
}

// Any graph may take the place of another one.
WARPLOOM_CUDA_API int cuGraphExecUpdate_v2(void* handle, void* from, UpdateResult* result) {
  return with_graph(from, [&](const std::shared_ptr<Graph>& graph) {
    std::shared_ptr<GraphProgram> program = graph_programs().find(handle);
    std::shared_ptr<GraphProgram> made = instantiate(*graph);
    const bool is_done = program != nullptr && made != nullptr;
    if (is_done) *program = *made;
    if (result != nullptr) *result = {is_done ? 0 : 1, nullptr, nullptr};
    return is_done ? abi::kSuccess : fail(abi::kGraphUpdateFailed, "the graph cannot be updated");
  });
}

WARPLOOM_CUDA_API int cuUserObjectCreate(void** handle, void* pointer, abi::HostFunction destroy,
                                         unsigned count, unsigned) {
  if (handle == nullptr || destroy == nullptr || count == 0) return abi::kInvalidValue;
  return guarded(abi::kOutOfMemory, [&] {
    auto object = std::make_shared<UserObject>(pointer, destroy);
    *handle = user_objects().add(
        std::make_shared<UserReference>(UserReference{object, object, count}));
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuUserObjectRetain(void* handle, unsigned count) {
  return guarded(abi::kInvalidValue, [&] {
    std::shared_ptr<UserReference> reference = user_objects().find(handle);
    std::shared_ptr<UserObject> object = reference ? reference->object.lock() : nullptr;
    if (object == nullptr) return abi::kInvalidValue;
    reference->own = object;
    reference->count += count;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuUserObjectRelease(void* object, unsigned count) {
  return guarded(abi::kInvalidValue, [&] { return drop(object, count); });
}

WARPLOOM_CUDA_API int cuGraphRetainUserObject(void* handle, void* object, unsigned count,
                                              unsigned flags) {
  constexpr unsigned kMove = 1;  // the graph takes the caller's references
  return with_graph(handle, [&](const std::shared_ptr<Graph>& graph) {
    std::shared_ptr<UserReference> reference = user_objects().find(object);
    std::shared_ptr<UserObject> found = reference ? reference->object.lock() : nullptr;
    if (found == nullptr) return abi::kInvalidValue;
    graph->keeps.insert(graph->keeps.end(), count, found);
    return (flags & kMove) != 0 ? drop(object, count) : abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuGraphReleaseUserObject(void* handle, void* object, unsigned count) {
  return with_graph(handle, [&](const std::shared_ptr<Graph>& graph) {
    std::shared_ptr<UserReference> reference = user_objects().find(object);
    std::shared_ptr<void> found = reference ? reference->object.lock() : nullptr;
    for (; count > 0; --count) {
      auto kept = std::find(graph->keeps.begin(), graph->keeps.end(), found);
      if (found == nullptr || kept == graph->keeps.end()) return abi::kInvalidValue;
      graph->keeps.erase(kept);
    }
    return abi::kSuccess;
  });
}
