// libcuda.so.1 of the emulator: the nodes of graphs.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/driver/copy.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/graph.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/launch.h"
#include "emulator/driver/library.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

int no_node() { return fail(abi::kInvalidValue, "there is no such graph, or no such node in it"); }

// Where a node is to be: the handle that it gets, its graph and what it needs.
struct Place {
  void** node;
  void* graph;
  void* const* needed;
  std::size_t count;
};

// `fill(node)` gives it its work, or returns why there is none.
template <class Fill>
int add(const Place& place, NodeKind kind, Fill fill) {
  if (place.node == nullptr || (place.needed == nullptr && place.count != 0)) {
    return abi::kInvalidValue;
  }
  return guarded(abi::kInvalidValue, [&] {
    std::shared_ptr<Graph> graph = graphs().find(place.graph);
    if (graph == nullptr) return no_node();
    std::vector<Node*> needs;
    for (std::size_t i = 0; i < place.count; ++i) {
      std::shared_ptr<Node> needed = graph_nodes().find(place.needed[i]);
      if (needed == nullptr || !graph->has(needed.get())) return no_node();
      needs.push_back(needed.get());
    }
    Node made;
    if (int code = fill(made); code != abi::kSuccess) return code;
    Node* node = graph->add(kind, std::move(made.work), std::move(needs));
    node->child = std::move(made.child);
    *place.node = node->handle;
    return abi::kSuccess;
  });
}

int add_kernel(const Place& place, const abi::KernelNode& kernel, bool has_kernel) {
  return add(place, NodeKind::kKernel, [&](Node& node) {
    LaunchRequest request;
    std::memcpy(request.grid.data(), kernel.grid, sizeof(kernel.grid));
    std::memcpy(request.block.data(), kernel.block, sizeof(kernel.block));
    request.dynamic_shared = kernel.shared_bytes;
    void* function = kernel.function == nullptr && has_kernel ? kernel.kernel : kernel.function;
    function = function_of(function);
    if (!Session::instance().facts(function)) return code_of(false, abi::kInvalidHandle);
    node.work = launch_work(function, request, {kernel.arguments, kernel.extra});
    return abi::kSuccess;
  });
}

int add_copy(const Place& place, const abi::Copy3d& copy) {
  return add(place, NodeKind::kCopy, [&](Node& node) {
    CopySide to, from;
    CopyExtent extent;
    if (!read_copy(copy, &to, &from, &extent)) return abi::kNotSupported;
    node.work = copy_work(nullptr, to, from, extent);
    return abi::kSuccess;
  });
}

int add_fill(const Place& place, const abi::FillNode& fill) {
  return add(place, NodeKind::kFill, [&](Node& node) {
    if (fill.width != 1 && fill.width != 2 && fill.width != 4) return abi::kInvalidValue;
    node.work = fill_work(nullptr, reinterpret_cast<void*>(fill.to), fill.pitch, fill.value,
                          fill.width, fill.columns, fill.rows);
    return abi::kSuccess;
  });
}

int add_host(const Place& place, const abi::HostNode& host) {
  return add(place, NodeKind::kHost, [&](Node& node) {
    if (host.function == nullptr) return abi::kInvalidValue;
    node.work = [host] {
      host.function(host.data);
      return abi::kSuccess;
    };
    return abi::kSuccess;
  });
}

int add_graph(const Place& place, void* child) {
  return add(place, NodeKind::kGraph, [&](Node& node) {
    std::shared_ptr<Graph> graph = graphs().find(child);
    if (graph == nullptr) return no_node();
    node.child = copy_graph(*graph);
    return abi::kSuccess;
  });
}

// CUgraphNodeParams: what is in the union depends on the kind.
struct NodeParameters {
  int kind;
  int reserved[3];
  union {
    abi::KernelNode kernel;
    struct {
      int flags, reserved;
      void* context;
      abi::Copy3d copy;
    } copy;
    abi::FillNode fill;
    abi::HostNode host;
    void* graph;
  } value;
};

int change_edges(void* handle, void* const* from, void* const* to, std::size_t count, bool adds) {
  return guarded(abi::kInvalidValue, [&] {
    std::shared_ptr<Graph> graph = graphs().find(handle);
    if (graph == nullptr || ((from == nullptr || to == nullptr) && count != 0)) return no_node();
    for (std::size_t i = 0; i < count; ++i) {
      std::shared_ptr<Node> first = graph_nodes().find(from[i]), second = graph_nodes().find(to[i]);
      if (!graph->has(first.get()) || !graph->has(second.get())) return no_node();
      auto& needs = second->needs;
      auto known = std::find(needs.begin(), needs.end(), first.get());
      if ((known == needs.end()) != adds) {
        return fail(abi::kInvalidValue, "an edge is there already, or is not there");
      }
      if (adds) {
        needs.push_back(first.get());
      } else {
        needs.erase(known);
      }
    }
    return abi::kSuccess;
  });
}

int needed_by(void* handle, void** nodes, std::size_t* count) {
  return guarded(abi::kInvalidValue, [&] {
    std::shared_ptr<Node> node = graph_nodes().find(handle);
    if (node == nullptr) return no_node();
    if (count == nullptr) return abi::kInvalidValue;
    if (nodes != nullptr) {
      for (std::size_t i = 0; i < *count; ++i) {
        nodes[i] = i < node->needs.size() ? node->needs[i]->handle : nullptr;
      }
      *count = std::min(*count, node->needs.size());
    } else {
      *count = node->needs.size();
    }
    return abi::kSuccess;
  });
}

}  // namespace

WARPLOOM_CUDA_API int cuGraphAddKernelNode_v2(void** node, void* graph, void* const* needed,
                                              std::size_t count, const abi::KernelNode* kernel) {
  if (kernel == nullptr) return abi::kInvalidValue;
  return add_kernel({node, graph, needed, count}, *kernel, true);
}

WARPLOOM_CUDA_API int cuGraphAddKernelNode(void** node, void* graph, void* const* needed,
                                           std::size_t count, const abi::KernelNode* kernel) {
  if (kernel == nullptr) return abi::kInvalidValue;
  return add_kernel({node, graph, needed, count}, *kernel, false);
}

WARPLOOM_CUDA_API int cuGraphAddMemcpyNode(void** node, void* graph, void* const* needed,
                                           std::size_t count, const abi::Copy3d* copy, void*) {
  if (copy == nullptr) return abi::kInvalidValue;
  return add_copy({node, graph, needed, count}, *copy);
}

WARPLOOM_CUDA_API int cuGraphAddMemsetNode(void** node, void* graph, void* const* needed,
                                           std::size_t count, const abi::FillNode* fill, void*) {
  if (fill == nullptr) return abi::kInvalidValue;
  return add_fill({node, graph, needed, count}, *fill);
}

WARPLOOM_CUDA_API int cuGraphAddHostNode(void** node, void* graph, void* const* needed,
                                         std::size_t count, const abi::HostNode* host) {
  if (host == nullptr) return abi::kInvalidValue;
  return add_host({node, graph, needed, count}, *host);
}

WARPLOOM_CUDA_API int cuGraphAddChildGraphNode(void** node, void* graph, void* const* needed,
                                               std::size_t count, void* child) {
  return add_graph({node, graph, needed, count}, child);
}

WARPLOOM_CUDA_API int cuGraphAddEmptyNode(void** node, void* graph, void* const* needed,
                                          std::size_t count) {
  return add({node, graph, needed, count}, NodeKind::kEmpty,
             [](Node&) { return abi::kSuccess; });
}

// Events of nodes take no time, and what they wait for is done.
WARPLOOM_CUDA_API int cuGraphAddEventRecordNode(void** node, void* graph, void* const* needed,
                                                std::size_t count, void*) {
  return add({node, graph, needed, count}, NodeKind::kEventRecord,
             [](Node&) { return abi::kSuccess; });
}

WARPLOOM_CUDA_API int cuGraphAddEventWaitNode(void** node, void* graph, void* const* needed,
                                              std::size_t count, void*) {
  return add({node, graph, needed, count}, NodeKind::kEventWait,
             [](Node&) { return abi::kSuccess; });
}

WARPLOOM_CUDA_API int cuGraphAddNode(void** node, void* graph, void* const* needed,
                                     std::size_t count, const NodeParameters* parameters) {
  if (parameters == nullptr) return abi::kInvalidValue;
  const Place place{node, graph, needed, count};
  switch (static_cast<NodeKind>(parameters->kind)) {
    case NodeKind::kKernel: return add_kernel(place, parameters->value.kernel, true);
    case NodeKind::kCopy: return add_copy(place, parameters->value.copy.copy);
    case NodeKind::kFill: return add_fill(place, parameters->value.fill);
    case NodeKind::kHost: return add_host(place, parameters->value.host);
    case NodeKind::kGraph: return add_graph(place, parameters->value.graph);
    case NodeKind::kEmpty:
    case NodeKind::kEventWait:
    case NodeKind::kEventRecord:
      return add(place, static_cast<NodeKind>(parameters->kind),
                 [](Node&) { return abi::kSuccess; });
  }
  return fail(abi::kNotSupported, "cuGraphAddNode: nodes of kind " +
                                      std::to_string(parameters->kind) + " are not served");
}

WARPLOOM_CUDA_API int cuGraphAddNode_v2(void** node, void* graph, void* const* needed, const void*,
                                        std::size_t count, const NodeParameters* parameters) {
  return cuGraphAddNode(node, graph, needed, count, parameters);
}

WARPLOOM_CUDA_API int cuGraphNodeGetType(void* handle, int* kind) {
  if (kind == nullptr) return abi::kInvalidValue;
  return guarded(abi::kInvalidValue, [&] {
    std::shared_ptr<Node> node = graph_nodes().find(handle);
    if (node == nullptr) return no_node();
    *kind = static_cast<int>(node->kind);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuGraphNodeGetDependencies(void* node, void** nodes, std::size_t* count) {
  return needed_by(node, nodes, count);
}

// Edges have no data.
WARPLOOM_CUDA_API int cuGraphNodeGetDependencies_v2(void* node, void** nodes, void*,
                                                    std::size_t* count) {
  return needed_by(node, nodes, count);
}

WARPLOOM_CUDA_API int cuGraphAddDependencies(void* graph, void* const* from, void* const* to,
                                             std::size_t count) {
  return change_edges(graph, from, to, count, true);
}

WARPLOOM_CUDA_API int cuGraphAddDependencies_v2(void* graph, void* const* from, void* const* to,
                                                const void*, std::size_t count) {
  return change_edges(graph, from, to, count, true);
}

WARPLOOM_CUDA_API int cuGraphRemoveDependencies(void* graph, void* const* from, void* const* to,
                                                std::size_t count) {
  return change_edges(graph, from, to, count, false);
}

WARPLOOM_CUDA_API int cuGraphRemoveDependencies_v2(void* graph, void* const* from, void* const* to,
                                                   const void*, std::size_t count) {
  return change_edges(graph, from, to, count, false);
}
