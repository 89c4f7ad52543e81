// libcudart.so.13 of the emulator: streams, events and graphs.

#include <cstddef>
#include <cstdint>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/runtime/cudart.h"

using namespace warploom::emulator;           // NOLINT: everything below belongs to the emulator
using namespace warploom::emulator::runtime;  // NOLINT

WARPLOOM_CUDA_API int cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  return noted(cuStreamCreateWithPriority(stream, flags, priority));
}

WARPLOOM_CUDA_API int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

WARPLOOM_CUDA_API int cudaStreamCreate(void** stream) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}

WARPLOOM_CUDA_API int cudaStreamDestroy(void* stream) { return noted(cuStreamDestroy_v2(stream)); }

WARPLOOM_CUDA_API int cudaStreamSynchronize(void* stream) {
  return waited(cuStreamSynchronize(stream));
}

WARPLOOM_CUDA_API int cudaStreamQuery(void* stream) { return waited(cuStreamSynchronize(stream)); }

WARPLOOM_CUDA_API int cudaStreamGetFlags(void* stream, unsigned* flags) {
  return noted(cuStreamGetFlags(stream, flags));
}

WARPLOOM_CUDA_API int cudaStreamGetPriority(void* stream, int* priority) {
  return noted(cuStreamGetPriority(stream, priority));
}

WARPLOOM_CUDA_API int cudaStreamGetId(void* stream, unsigned long long* number) {
  return noted(cuStreamGetId(stream, number));
}

WARPLOOM_CUDA_API int cudaStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return noted(cuStreamWaitEvent(stream, event, flags));
}

WARPLOOM_CUDA_API int cudaStreamAddCallback(void* stream, void (*function)(void*, int, void*),
                                            void* data, unsigned flags) {
  return noted(cuStreamAddCallback(stream, function, data, flags));
}

WARPLOOM_CUDA_API int cudaLaunchHostFunc(void* stream, abi::HostFunction function, void* data) {
  return noted(cuLaunchHostFunc(stream, function, data));
}

WARPLOOM_CUDA_API int cudaEventCreateWithFlags(void** event, unsigned flags) {
  return noted(cuEventCreate(event, flags));
}

WARPLOOM_CUDA_API int cudaEventCreate(void** event) { return cudaEventCreateWithFlags(event, 0); }

WARPLOOM_CUDA_API int cudaEventDestroy(void* event) { return noted(cuEventDestroy_v2(event)); }

WARPLOOM_CUDA_API int cudaEventRecord(void* event, void* stream) {
  return noted(cuEventRecord(event, stream));
}

WARPLOOM_CUDA_API int cudaEventRecordWithFlags(void* event, void* stream, unsigned) {
  return noted(cuEventRecord(event, stream));
}

WARPLOOM_CUDA_API int cudaEventQuery(void* event) { return waited(cuEventQuery(event)); }

WARPLOOM_CUDA_API int cudaEventSynchronize(void* event) { return waited(cuEventQuery(event)); }

WARPLOOM_CUDA_API int cudaEventElapsedTime(float* milliseconds, void* begin, void* end) {
  return noted(cuEventElapsedTime_v2(milliseconds, begin, end));
}

WARPLOOM_CUDA_API int cudaStreamBeginCapture(void* stream, int mode) {
  return noted(cuStreamBeginCapture_v2(stream, mode));
}

// cudaStreamCaptureStatus has the numbers of the driver.
WARPLOOM_CUDA_API int cudaStreamIsCapturing(void* stream, int* status) {
  return noted(cuStreamIsCapturing(stream, status));
}

WARPLOOM_CUDA_API int cudaStreamGetCaptureInfo(void* stream, int* status,
                                               unsigned long long* number, void** graph,
                                               void*** needed, const void** edges,
                                               std::size_t* count) {
  return noted(cuStreamGetCaptureInfo_v3(stream, status, number, graph, needed, edges, count));
}

WARPLOOM_CUDA_API int cudaThreadExchangeStreamCaptureMode(int* mode) {
  return noted(cuThreadExchangeStreamCaptureMode(mode));
}

WARPLOOM_CUDA_API int cudaStreamEndCapture(void* stream, void** graph) {
  return noted(cuStreamEndCapture(stream, graph));
}

WARPLOOM_CUDA_API int cudaGraphCreate(void** graph, unsigned flags) {
  return noted(cuGraphCreate(graph, flags));
}

WARPLOOM_CUDA_API int cudaGraphClone(void** clone, void* graph) {
  return noted(cuGraphClone(clone, graph));
}

WARPLOOM_CUDA_API int cudaGraphGetNodes(void* graph, void** nodes, std::size_t* count) {
  return noted(cuGraphGetNodes(graph, nodes, count));
}

WARPLOOM_CUDA_API int cudaGraphInstantiate(void** program, void* graph, unsigned long long flags) {
  return noted(cuGraphInstantiateWithFlags(program, graph, flags));
}

WARPLOOM_CUDA_API int cudaGraphInstantiateWithFlags(void** program, void* graph,
                                                    unsigned long long flags) {
  return cudaGraphInstantiate(program, graph, flags);
}

WARPLOOM_CUDA_API int cudaGraphUpload(void* program, void* stream) {
  return noted(cuGraphUpload(program, stream));
}

WARPLOOM_CUDA_API int cudaGraphLaunch(void* program, void* stream) {
  const int code = cuGraphLaunch(program, stream);
  if (code == abi::kLaunchFailed) launch_failed(code);
  return noted(code);
}

WARPLOOM_CUDA_API int cudaGraphDestroy(void* graph) { return noted(cuGraphDestroy(graph)); }

WARPLOOM_CUDA_API int cudaGraphExecDestroy(void* program) {
  return noted(cuGraphExecDestroy(program));
}
