// What the emulated runtime library, and programs that are linked with the emulator, call of the
// emulated driver library.

#ifndef WARPLOOM_EMULATOR_DRIVER_DRIVER_API_H_
#define WARPLOOM_EMULATOR_DRIVER_DRIVER_API_H_

#include <cstddef>
#include <cstdint>

#include "emulator/driver/cuda_abi.h"

extern "C" {
// The face that Python sees (libcuda_face.cc).
int warploom_emulator_current_device();
int warploom_emulator_set_device(int index);
void* warploom_emulator_allocate(std::size_t bytes);  // in the memory of the current device
int warploom_emulator_release(void* pointer);
const char* warploom_emulator_error();  // what went wrong last in this thread
const char* warploom_emulator_error_of(int code);  // the same if it was this error; else nullptr
int warploom_emulator_fail(int code, const char* why);  // returns the code

int cuModuleLoadData(void** module, const void* image);
int cuModuleUnload(void* module);
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuModuleGetGlobal_v2(uint64_t* address, std::size_t* bytes, void* module, const char* name);
int cuLibraryLoadData(void** library, const void* image, const int* options, void** values,
                      unsigned count, const int* library_options, void** library_values,
                      unsigned library_count);
int cuLibraryUnload(void* library);
int cuLibraryGetKernel(void** kernel, void* library, const char* name);
int cuLibraryGetGlobal(uint64_t* address, std::size_t* bytes, void* library, const char* name);
int cuKernelGetFunction(void** function, void* kernel);
int cuFuncGetAttribute(int* value, int attribute, void* function);
int cuFuncSetAttribute(void* function, int attribute, int value);
int cuLaunchKernelEx(const warploom::emulator::abi::LaunchConfig* config, void* function,
                     void** arguments, void** extra);
int cuLaunchHostFunc(void* stream, warploom::emulator::abi::HostFunction function, void* data);
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, void* function, int threads,
                                                std::size_t dynamic_shared);
int cuOccupancyMaxPotentialClusterSize(int* size, void* function,
                                       const warploom::emulator::abi::LaunchConfig* config);
int cuOccupancyMaxActiveClusters(int* count, void* function,
                                 const warploom::emulator::abi::LaunchConfig* config);
int cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, void* function, int ctas,
                                            int threads);

int cuDeviceGetCount(int* count);
int cuDeviceGetName(char* name, int length, int device);
int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuDeviceGetUuid_v2(char* uuid, int device);
int cuDeviceGetPCIBusId(char* text, int length, int device);
int cuDeviceGetByPCIBusId(int* device, const char* text);
int cuDeviceCanAccessPeer(int* can, int device, int peer);
int cuDriverGetVersion(int* version);
int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status);
int cuCtxGetStreamPriorityRange(int* least, int* greatest);
int cuCtxSetLimit(int limit, std::size_t value);
int cuCtxGetLimit(std::size_t* value, int limit);

int cuMemAlloc_v2(uint64_t* pointer, std::size_t bytes);
int cuMemAllocPitch_v2(uint64_t* pointer, std::size_t* pitch, std::size_t width,
                       std::size_t height, unsigned element);
int cuMemAllocManaged(uint64_t* pointer, std::size_t bytes, unsigned flags);
int cuMemAllocAsync(uint64_t* pointer, std::size_t bytes, void* stream);
int cuMemAllocFromPoolAsync(uint64_t* pointer, std::size_t bytes, void* pool, void* stream);
int cuMemFree_v2(uint64_t pointer);
int cuMemFreeAsync(uint64_t pointer, void* stream);
int cuMemHostAlloc(void** pointer, std::size_t bytes, unsigned flags);
int cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned flags);
int cuMemHostUnregister(void* pointer);
int cuMemHostGetDevicePointer_v2(uint64_t* address, void* pointer, unsigned flags);
int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total);
int cuPointerGetAttribute(void* value, int attribute, uint64_t address);
int cuMemcpyAsync(uint64_t to, uint64_t from, std::size_t bytes, void* stream);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, std::size_t bytes, void* stream);
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, std::size_t bytes, void* stream);
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, std::size_t bytes, void* stream);
int cuMemcpy2DAsync_v2(const warploom::emulator::abi::Copy2d* copy, void* stream);
int cuMemcpy3DAsync_v2(const warploom::emulator::abi::Copy3d* copy, void* stream);
int cuMemsetD8Async(uint64_t to, unsigned char value, std::size_t count, void* stream);
int cuMemsetD2D8Async(uint64_t to, std::size_t pitch, unsigned char value, std::size_t width,
                      std::size_t height, void* stream);
int cuDeviceGetDefaultMemPool(void** pool, int device);
int cuDeviceGetMemPool(void** pool, int device);
int cuDeviceSetMemPool(int device, void* pool);
int cuMemPoolSetAttribute(void* pool, int attribute, void* value);
int cuMemPoolGetAttribute(void* pool, int attribute, void* value);
int cuMemPoolTrimTo(void* pool, std::size_t bytes);

int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority);
int cuStreamDestroy_v2(void* stream);
int cuStreamSynchronize(void* stream);
int cuStreamGetFlags(void* stream, unsigned* flags);
int cuStreamGetPriority(void* stream, int* priority);
int cuStreamGetId(void* stream, unsigned long long* number);
int cuStreamWaitEvent(void* stream, void* event, unsigned flags);
int cuStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data,
                        unsigned flags);
int cuEventCreate(void** event, unsigned flags);
int cuEventDestroy_v2(void* event);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
int cuEventElapsedTime_v2(float* milliseconds, void* begin, void* end);

int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuStreamIsCapturing(void* stream, int* status);
int cuStreamGetCaptureInfo_v3(void* stream, int* status, unsigned long long* number, void** graph,
                              void*** needed, const void** edges, std::size_t* count);
int cuThreadExchangeStreamCaptureMode(int* mode);
int cuGraphCreate(void** graph, unsigned flags);
int cuGraphDestroy(void* graph);
int cuGraphClone(void** clone, void* graph);
int cuGraphGetNodes(void* graph, void** nodes, std::size_t* count);
int cuGraphInstantiateWithFlags(void** program, void* graph, unsigned long long flags);
int cuGraphUpload(void* program, void* stream);
int cuGraphLaunch(void* program, void* stream);
int cuGraphExecDestroy(void* program);
}

#endif  // WARPLOOM_EMULATOR_DRIVER_DRIVER_API_H_
