// libcuda.so.1 of the emulator: streams that are captured into graphs.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/stream.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

namespace {

constexpr int kActive = 1;  // CU_STREAM_CAPTURE_STATUS_ACTIVE

// Nodes by their handles; false if there is no such node.
bool find_nodes(void* const* handles, std::size_t count, std::vector<Node*>* nodes) {
  if (handles == nullptr && count != 0) return false;
  for (std::size_t i = 0; i < count; ++i) {
    std::shared_ptr<Node> node = graph_nodes().find(handles[i]);
    if (node == nullptr) return false;
    nodes->push_back(node.get());
  }
  return true;
}

int begin(void* stream, std::shared_ptr<Graph> into) {
  if (!is_stream(stream)) return fail(abi::kInvalidHandle, "there is no such stream");
  if (begin_capture(stream, std::move(into))) return abi::kSuccess;
  return fail(abi::kCaptureUnsupported,
              "the stream is being captured already, or is a default stream, which cannot be");
}

int info(void* stream, int* status, unsigned long long* number, void** graph, void*** needed,
         std::size_t* count) {
  // Where they lie until this thread asks again.
  static thread_local std::vector<void*> handles;
  return guarded(abi::kInvalidValue, [&] {
    if (status == nullptr) return abi::kInvalidValue;
    if (!is_stream(stream)) return fail(abi::kInvalidHandle, "there is no such stream");
    std::shared_ptr<Capture> capture = capture_of(stream);
    *status = capture == nullptr ? 0 : kActive;
    if (count != nullptr) *count = 0;
    if (capture == nullptr) return abi::kSuccess;
    if (number != nullptr) *number = capture->number;
    if (capture->graph_handle == nullptr) capture->graph_handle = graphs().add(capture->graph);
    if (graph != nullptr) *graph = capture->graph_handle;
    handles.clear();
    for (const Node* node : frontier_of(stream)) handles.push_back(node->handle);
    if (needed != nullptr) *needed = handles.data();
    if (count != nullptr) *count = handles.size();
    return abi::kSuccess;
  });
}

int update(void* stream, void** needed, std::size_t count, unsigned flags) {
  constexpr unsigned kReplace = 1;
  return guarded(abi::kInvalidValue, [&] {
    std::vector<Node*> nodes;
    if (!is_captured(stream) || !find_nodes(needed, count, &nodes)) {
      return fail(abi::kInvalidValue, "the stream is not being captured, or a node is missing");
    }
    set_frontier(stream, nodes, (flags & kReplace) == 0);
    return abi::kSuccess;
  });
}

}  // namespace

WARPLOOM_CUDA_API int cuStreamBeginCapture_v2(void* stream, int) {
  return guarded(abi::kCaptureUnsupported, [&] { return begin(stream, nullptr); });
}

WARPLOOM_CUDA_API int cuStreamBeginCapture(void* stream) {
  return cuStreamBeginCapture_v2(stream, 0);
}

WARPLOOM_CUDA_API int cuStreamBeginCaptureToGraph(void* stream, void* handle, void** needed,
                                                  const void*, std::size_t count, int) {
  return guarded(abi::kCaptureUnsupported, [&] {
    std::shared_ptr<Graph> graph = graphs().find(handle);
    std::vector<Node*> nodes;
    if (graph == nullptr || !find_nodes(needed, count, &nodes)) {
      return fail(abi::kInvalidHandle, "there is no such graph, or no such node in it");
    }
    if (int code = begin(stream, graph); code != abi::kSuccess) return code;
    capture_of(stream)->graph_handle = handle;
    set_frontier(stream, nodes, false);
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuStreamEndCapture(void* stream, void** graph) {
  if (graph == nullptr) return abi::kInvalidValue;
  *graph = nullptr;
  return guarded(abi::kCaptureInvalidated, [&] {
    switch (end_capture(stream, graph)) {
      case CaptureEnd::kWell: return abi::kSuccess;
      case CaptureEnd::kOfOther:
        return fail(abi::kCaptureUnmatched, "another stream began this capture, and has to end it");
      case CaptureEnd::kUnjoined:
        return fail(abi::kCaptureUnjoined,
                    "work of another stream is captured that this stream does not wait for");
      case CaptureEnd::kNone: break;
    }
    return fail(abi::kCaptureInvalidated, "the stream is not being captured");
  });
}

WARPLOOM_CUDA_API int cuStreamIsCapturing(void* stream, int* status) {
  if (status == nullptr) return abi::kInvalidValue;
  return guarded(abi::kInvalidHandle, [&] {
    *status = is_captured(stream) ? kActive : 0;
    return abi::kSuccess;
  });
}

WARPLOOM_CUDA_API int cuStreamGetCaptureInfo_v2(void* stream, int* status,
                                                unsigned long long* number, void** graph,
                                                void*** needed, std::size_t* count) {
  return info(stream, status, number, graph, needed, count);
}

// Edges have no data.
WARPLOOM_CUDA_API int cuStreamGetCaptureInfo_v3(void* stream, int* status,
                                                unsigned long long* number, void** graph,
                                                void*** needed, const void** edges,
                                                std::size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return info(stream, status, number, graph, needed, count);
}

WARPLOOM_CUDA_API int cuStreamUpdateCaptureDependencies(void* stream, void** needed,
                                                        std::size_t count, unsigned flags) {
  return update(stream, needed, count, flags);
}

WARPLOOM_CUDA_API int cuStreamUpdateCaptureDependencies_v2(void* stream, void** needed, const void*,
                                                           std::size_t count, unsigned flags) {
  return update(stream, needed, count, flags);
}

// No call is forbidden while a stream is captured; the mode is only kept.
WARPLOOM_CUDA_API int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int current = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL
  if (mode == nullptr) return abi::kInvalidValue;
  std::swap(current, *mode);
  return abi::kSuccess;
}
