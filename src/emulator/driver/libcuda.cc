// libcuda.so.1 of the emulator: the driver itself, and its devices.
//
// An error's name is the channel by which a reason reaches the user: TVM puts what cuGetErrorName
// returns into the exception it raises.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "emulator/base/device.h"
#include "emulator/driver/attributes.h"
#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/error_names.h"
#include "emulator/driver/functions.h"
#include "emulator/driver/guard.h"
#include "emulator/driver/session.h"

using namespace warploom::emulator;  // NOLINT: everything below belongs to the emulator

WARPLOOM_CUDA_API int cuInit(unsigned) { return abi::kSuccess; }

// Undocumented tables: there are none here. NVRTC and others do without them.
WARPLOOM_CUDA_API int cuGetExportTable(const void** table, const void*) {
  if (table != nullptr) *table = nullptr;
  return abi::kNotFound;
}

WARPLOOM_CUDA_API int cuDriverGetVersion(int* version) {
  if (version == nullptr) return abi::kInvalidValue;
  *version = abi::kDriverVersion;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuGetProcAddress_v2(const char* name, void** function, int version,
                                          uint64_t, int* status) {
  enum Status : int { kFound = 0, kUnknown = 1, kTooOld = 2 };
  if (name == nullptr || function == nullptr) return abi::kInvalidValue;
  // Streams of their own for each thread are the same streams here.
  const FoundFunction found = find_function(name, version);
  *function = found.address;
  if (status != nullptr) {
    *status = found.address != nullptr ? kFound : found.is_known ? kTooOld : kUnknown;
  }
  return found.address != nullptr ? abi::kSuccess : abi::kNotFound;
}

WARPLOOM_CUDA_API int cuGetProcAddress(const char* name, void** function, int version,
                                       uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

WARPLOOM_CUDA_API int cuGetErrorName(int error, const char** text) {
  if (text == nullptr) return abi::kInvalidValue;
  const char* known = driver_error_name(error);
  const char* reason = error == abi::kSuccess ? nullptr : Session::error_of(error);
  *text = reason != nullptr ? reason : known;
  return *text != nullptr ? abi::kSuccess : abi::kInvalidValue;
}

WARPLOOM_CUDA_API int cuGetErrorString(int error, const char** text) {
  return cuGetErrorName(error, text);
}

WARPLOOM_CUDA_API int cuDeviceGetCount(int* count) {
  if (count == nullptr) return abi::kInvalidValue;
  *count = device_count();
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGet(int* device, int ordinal) {
  if (device == nullptr) return abi::kInvalidValue;
  if (find_device(ordinal) == nullptr) return abi::kInvalidDevice;
  *device = ordinal;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGetName(char* name, int length, int device) {
  const Device* facts = find_device(device);
  if (facts == nullptr) return abi::kInvalidDevice;
  if (name == nullptr || length <= 0) return abi::kInvalidValue;
  std::snprintf(name, static_cast<std::size_t>(length), "%s", facts->name);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const Device* facts = find_device(device);
  if (facts == nullptr) return abi::kInvalidDevice;
  const auto found = device_attribute(*facts, attribute);
  if (value == nullptr || !found) return abi::kInvalidValue;
  *value = *found;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceComputeCapability(int* major, int* minor, int device) {
  const Device* facts = find_device(device);
  if (facts == nullptr) return abi::kInvalidDevice;
  if (major == nullptr || minor == nullptr) return abi::kInvalidValue;
  *major = facts->major;
  *minor = facts->minor;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  if (find_device(device) == nullptr) return abi::kInvalidDevice;
  if (bytes == nullptr) return abi::kInvalidValue;
  *bytes = kMemoryBytes;
  return abi::kSuccess;
}

// "warploom", and the number of the device.
WARPLOOM_CUDA_API int cuDeviceGetUuid_v2(char* uuid, int device) {
  if (find_device(device) == nullptr) return abi::kInvalidDevice;
  if (uuid == nullptr) return abi::kInvalidValue;
  std::memset(uuid, 0, 16);
  std::memcpy(uuid, "warploom", 8);
  uuid[15] = static_cast<char>(device + 1);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGetPCIBusId(char* text, int length, int device) {
  if (find_device(device) == nullptr) return abi::kInvalidDevice;
  if (text == nullptr || length < 13) return abi::kInvalidValue;
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", device + 1);
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned bus = 0;
  if (device == nullptr || text == nullptr) return abi::kInvalidValue;
  const bool is_read = std::sscanf(text, "%*x:%x:%*x.%*x", &bus) == 1;
  if (!is_read || find_device(static_cast<int>(bus) - 1) == nullptr) return abi::kInvalidDevice;
  *device = static_cast<int>(bus) - 1;
  return abi::kSuccess;
}

// Devices do not reach the memory of each other.
WARPLOOM_CUDA_API int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (find_device(device) == nullptr || find_device(peer) == nullptr) return abi::kInvalidDevice;
  if (can == nullptr) return abi::kInvalidValue;
  *can = 0;
  return abi::kSuccess;
}

WARPLOOM_CUDA_API int cuDeviceGetP2PAttribute(int* value, int, int device, int peer) {
  return cuDeviceCanAccessPeer(value, device, peer);
}
