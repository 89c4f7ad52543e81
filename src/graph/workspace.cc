// Memory that kernels' host code asks TVM for while it is captured.
//
// TVM has a pool for it, which gives a block back to the device when a larger one is wanted. A
// graph has the address of its block; so blocks of captures come from a pool that keeps all of
// them, for graphs of this project and of TVM (relax.backend.use_cuda_graph). Without a capture
// TVM's pool is asked.

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <vector>

#include "graph/value.h"
#include "launch/cuda_library.h"

namespace warploom::graph {
namespace {

using Allocate = void*(int device_type, int device, uint64_t bytes, int code, int bits);
using Free = int(int device_type, int device, void* block);

constexpr const char* kAllocate = "__TVMBackendAllocWorkspace";
constexpr const char* kFree = "__TVMBackendFreeWorkspace";
constexpr int kActive = 1;   // cudaStreamCaptureStatusActive
constexpr int kRelaxed = 2;  // cudaStreamCaptureModeRelaxed

Allocate* stock_allocate = nullptr;
Free* stock_free = nullptr;

struct Block {
  void* data;
  uint64_t bytes;
  int device;
  bool is_used;
};

// Of the captures of a thread, whose graphs run one after the other. Never destroyed: its graphs
// may outlive the thread.
std::vector<Block>& blocks() {
  static thread_local auto* blocks = new std::vector<Block>;
  return *blocks;
}

bool is_captured(int device) {
  static const auto status = cuda_function<int(void*, int*)>(kCudaRuntime, "cudaStreamIsCapturing");
  void* stream = TVMFFIEnvGetStream(kCuda, device);
  int found = 0;
  // The default stream cannot be captured.
  return stream != nullptr && status != nullptr && status(stream, &found) == 0 && found == kActive;
}

// nullptr if there is no memory.
void* allocate_in_capture(uint64_t bytes) {
  static const auto exchange =
      cuda_function<int(int*)>(kCudaRuntime, "cudaThreadExchangeStreamCaptureMode");
  static const auto allocate = cuda_function<int(void**, size_t)>(kCudaRuntime, "cudaMalloc");
  if (exchange == nullptr || allocate == nullptr) return nullptr;
  int mode = kRelaxed;  // captures of TVM forbid allocations
  if (exchange(&mode) != 0) return nullptr;
  void* data = nullptr;
  if (allocate(&data, bytes) != 0) data = nullptr;
  exchange(&mode);
  return data;
}

void* keep(int device, uint64_t bytes) {
  Block* best = nullptr;
  for (Block& one : blocks()) {
    const bool fits = !one.is_used && one.device == device && one.bytes >= bytes;
    if (fits && (best == nullptr || one.bytes < best->bytes)) best = &one;
  }
  if (best == nullptr) {
    void* data = allocate_in_capture(bytes);
    if (data == nullptr) return nullptr;
    best = &blocks().emplace_back(Block{data, bytes, device, true});
  }
  best->is_used = true;
  return best->data;
}

void* allocate(int device_type, int device, uint64_t bytes, int code, int bits) {
  if (device_type == kCuda && is_captured(device)) {
    if (void* data = keep(device, bytes == 0 ? 1 : bytes)) return data;
  }
  return stock_allocate(device_type, device, bytes, code, bits);
}

int free(int device_type, int device, void* data) {
  if (device_type == kCuda) {
    for (Block& one : blocks()) {
      if (one.data != data) continue;
      one.is_used = false;
      return 0;
    }
  }
  return stock_free(device_type, device, data);
}

// Puts both functions in the place of TVM's, for libraries that are loaded from now on.
bool keep_workspaces() {
  if (stock_allocate != nullptr) return true;
  tvm::ffi::Module::VisitContextSymbols([](tvm::ffi::String name, void* symbol) {
    if (name == kAllocate) stock_allocate = reinterpret_cast<Allocate*>(symbol);
    if (name == kFree) stock_free = reinterpret_cast<Free*>(symbol);
  });
  if (stock_allocate == nullptr || stock_free == nullptr) {
    stock_allocate = nullptr;
    return false;
  }
  return TVMFFIEnvModRegisterContextSymbol(kAllocate, reinterpret_cast<void*>(allocate)) == 0 &&
         TVMFFIEnvModRegisterContextSymbol(kFree, reinterpret_cast<void*>(free)) == 0;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def(
      "warploom.graph.keep_workspaces", keep_workspaces,
      "Keep the workspaces of captured kernels; false if TVM has no functions for them.");
}

}  // namespace
}  // namespace warploom::graph
