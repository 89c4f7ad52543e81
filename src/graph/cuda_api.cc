#include "graph/cuda_api.h"

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "graph/value.h"
#include "launch/cuda_library.h"

namespace warploom::graph {
namespace {

constexpr unsigned kNonBlocking = 1;  // cudaStreamNonBlocking
constexpr int kRelaxed = 2;           // cudaStreamCaptureModeRelaxed

template <typename Function>
void find(Function*& function, const char* name) {
  function = cuda_function<Function>(kCudaRuntime, name);
  if (function == nullptr) {
    TVM_FFI_THROW(RuntimeError) << "no CUDA runtime with " << name << " is loaded";
  }
}

CudaApi loaded() {
  CudaApi api;
  find(api.get_device, "cudaGetDevice");
  find(api.malloc, "cudaMalloc");
  find(api.free, "cudaFree");
  find(api.copy, "cudaMemcpyAsync");
  find(api.create_stream, "cudaStreamCreateWithFlags");
  find(api.destroy_stream, "cudaStreamDestroy");
  find(api.create_event, "cudaEventCreate");
  find(api.destroy_event, "cudaEventDestroy");
  find(api.record_event, "cudaEventRecord");
  find(api.synchronize_event, "cudaEventSynchronize");
  find(api.begin_capture, "cudaStreamBeginCapture");
  find(api.end_capture, "cudaStreamEndCapture");
  find(api.instantiate, "cudaGraphInstantiate");
  find(api.launch, "cudaGraphLaunch");
  find(api.destroy_graph, "cudaGraphDestroy");
  find(api.destroy_executable, "cudaGraphExecDestroy");
  find(api.last_error, "cudaGetLastError");
  find(api.error_string, "cudaGetErrorString");
  return api;
}

}  // namespace

const CudaApi& CudaApi::get() {
  static const CudaApi api = loaded();
  return api;
}

void CudaApi::check(int code, const char* what) const {
  if (code == 0) return;
  last_error();  // or the next caller of CUDA would be told of this error
  TVM_FFI_THROW(RuntimeError) << what << " failed: " << error_string(code);
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  const CudaApi& api = CudaApi::get();
  void* data = nullptr;
  api.check(api.malloc(&data, bytes), "cudaMalloc");
  data_ = std::shared_ptr<void>(data, [&api](void* one) { api.free(one); });
}

Event::Event() {
  const CudaApi& api = CudaApi::get();
  api.check(api.create_event(&event_), "cudaEventCreate");
}

Event::~Event() { CudaApi::get().destroy_event(event_); }

void Event::record(void* stream) {
  const CudaApi& api = CudaApi::get();
  api.check(api.record_event(event_, stream), "cudaEventRecord");
  is_recorded_ = true;
}

void Event::wait() {
  const CudaApi& api = CudaApi::get();
  if (is_recorded_) api.check(api.synchronize_event(event_), "cudaEventSynchronize");
}

Capture::Capture(int device) : device_(device) {
  const CudaApi& api = CudaApi::get();
  api.check(api.create_stream(&stream_, kNonBlocking), "cudaStreamCreateWithFlags");
  if (int code = api.begin_capture(stream_, kRelaxed); code != 0) {
    api.destroy_stream(stream_);
    api.check(code, "cudaStreamBeginCapture");
  }
  TVMFFIEnvSetStream(kCuda, device_, stream_, &before_);
  is_open_ = true;
}

void Capture::end(void** graph) {
  const CudaApi& api = CudaApi::get();
  is_open_ = false;
  TVMFFIEnvSetStream(kCuda, device_, before_, nullptr);
  const int code = api.end_capture(stream_, graph);
  api.destroy_stream(stream_);
  api.check(code, "cudaStreamEndCapture");
}

Capture::~Capture() {
  if (!is_open_) return;
  void* graph = nullptr;
  try {
    end(&graph);
  } catch (const tvm::ffi::Error&) {  // why it failed has been thrown already
    return;
  }
  if (graph != nullptr) CudaApi::get().destroy_graph(graph);
}

std::shared_ptr<void> Capture::finish() {
  const CudaApi& api = CudaApi::get();
  void* graph = nullptr;
  end(&graph);
  void* executable = nullptr;
  const int code = api.instantiate(&executable, graph, 0);
  api.destroy_graph(graph);
  api.check(code, "cudaGraphInstantiate");
  return {executable, [&api](void* one) { api.destroy_executable(one); }};
}

}  // namespace warploom::graph
