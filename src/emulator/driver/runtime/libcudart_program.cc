// libcudart.so.13 of the emulator: what the code that nvcc adds to a program calls, and variables.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/runtime/cudart.h"

using namespace warploom::emulator;           // NOLINT: everything below belongs to the emulator
using namespace warploom::emulator::runtime;  // NOLINT

namespace {

// A fat binary of the program; it is loaded when something of it is used.
struct Binary {
  const void* image;
  void* library = nullptr;
};

struct Symbol {
  std::shared_ptr<Binary> binary;
  std::string name;
  void* kernel = nullptr;
  void** managed = nullptr;  // the program's pointer to a managed variable
};

struct Program {
  std::mutex mutex;
  std::map<void**, std::shared_ptr<Binary>> binaries;
  std::map<const void*, Symbol> functions, variables;  // by the host's address
};

// Never destroyed: programs unregister while they end.
Program& program() {
  static auto* program = new Program;
  return *program;
}

struct Configuration {
  Dim3 grid, block;
  std::size_t shared;
  void* stream;
};

thread_local std::vector<Configuration> configurations;

// The library of a binary; nullptr, with an error, if it cannot be loaded.
void* loaded(Binary& binary) {
  if (binary.library == nullptr) {
    cuLibraryLoadData(&binary.library, binary.image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  return binary.library;
}

void add(std::map<const void*, Symbol>& symbols, void** handle, const void* host, const char* name,
         void** managed) {
  std::lock_guard<std::mutex> lock(program().mutex);
  auto binary = program().binaries.find(handle);
  if (binary != program().binaries.end()) {
    symbols[host] = Symbol{binary->second, name, nullptr, managed};
  }
}

// Managed variables have an address before anything runs.
void place_managed() {
  for (auto& [host, symbol] : program().variables) {
    if (symbol.managed == nullptr || loaded(*symbol.binary) == nullptr) continue;
    uint64_t address = 0;
    if (cuLibraryGetGlobal(&address, nullptr, symbol.binary->library, symbol.name.c_str()) == 0) {
      *symbol.managed = reinterpret_cast<void*>(address);
    }
  }
}

int copy_symbol(const void* symbol, void* host_to, const void* host_from, std::size_t bytes,
                std::size_t offset, void* stream) {
  uint64_t address = 0;
  std::size_t size = 0;
  if (!find_variable(symbol, &address, &size)) return abi::kNotFound;
  if (offset > size || bytes > size - offset) {
    return warploom_emulator_fail(abi::kInvalidValue, "a copy goes beyond the end of a variable");
  }
  address += offset;
  const uint64_t to = host_to != nullptr ? address_of(host_to) : address;
  const uint64_t from = host_from != nullptr ? address_of(host_from) : address;
  return cuMemcpyAsync(to, from, bytes, stream);
}

}  // namespace

namespace warploom::emulator::runtime {

void* function_of(const void* host_function) {
  std::lock_guard<std::mutex> lock(program().mutex);
  auto entry = program().functions.find(host_function);
  // What was found once may be given again: a handle of a kernel, as of cudaGetKernel.
  if (entry == program().functions.end()) return const_cast<void*>(host_function);
  Symbol& symbol = entry->second;
  if (symbol.kernel == nullptr && loaded(*symbol.binary) != nullptr) {
    place_managed();
    cuLibraryGetKernel(&symbol.kernel, symbol.binary->library, symbol.name.c_str());
  }
  return symbol.kernel;
}

bool find_variable(const void* host_variable, uint64_t* address, std::size_t* bytes) {
  std::lock_guard<std::mutex> lock(program().mutex);
  auto entry = program().variables.find(host_variable);
  if (entry == program().variables.end()) {
    warploom_emulator_fail(abi::kNotFound, "the program has registered no such variable");
    return false;
  }
  Symbol& symbol = entry->second;
  return loaded(*symbol.binary) != nullptr &&
         cuLibraryGetGlobal(address, bytes, symbol.binary->library, symbol.name.c_str()) == 0;
}

}  // namespace warploom::emulator::runtime

#define WARPLOOM_PROGRAM_API(result) extern "C" __attribute__((visibility("default"))) result

WARPLOOM_PROGRAM_API(void**) __cudaRegisterFatBinary(const void* image) {
  std::lock_guard<std::mutex> lock(program().mutex);
  auto binary = std::make_shared<Binary>(Binary{image});
  auto** handle = reinterpret_cast<void**>(binary.get());
  program().binaries[handle] = std::move(binary);
  return handle;
}

WARPLOOM_PROGRAM_API(void) __cudaRegisterFatBinaryEnd(void**) {}

WARPLOOM_PROGRAM_API(void) __cudaUnregisterFatBinary(void** handle) {
  std::lock_guard<std::mutex> lock(program().mutex);
  auto entry = program().binaries.find(handle);
  if (entry == program().binaries.end()) return;
  const std::shared_ptr<Binary> binary = entry->second;
  for (auto* symbols : {&program().functions, &program().variables}) {
    for (auto symbol = symbols->begin(); symbol != symbols->end();) {
      symbol = symbol->second.binary == binary ? symbols->erase(symbol) : std::next(symbol);
    }
  }
  if (binary->library != nullptr) cuLibraryUnload(binary->library);
  program().binaries.erase(entry);
}

WARPLOOM_PROGRAM_API(char) __cudaInitModule(void** handle) {
  std::lock_guard<std::mutex> lock(program().mutex);
  auto entry = program().binaries.find(handle);
  if (entry == program().binaries.end() || loaded(*entry->second) == nullptr) return 0;
  place_managed();
  return 1;
}

WARPLOOM_PROGRAM_API(void)
__cudaRegisterFunction(void** handle, const void* host, char*, const char* name, int, void*, void*,
                       void*, void*, int*) {
  add(program().functions, handle, host, name, nullptr);
}

WARPLOOM_PROGRAM_API(void)
__cudaRegisterVar(void** handle, const void* host, char*, const char* name, int, std::size_t, int,
                  int) {
  add(program().variables, handle, host, name, nullptr);
}

WARPLOOM_PROGRAM_API(void)
__cudaRegisterManagedVar(void** handle, void** host, char*, const char* name, int, std::size_t, int,
                         int) {
  add(program().variables, handle, host, name, host);
}

WARPLOOM_PROGRAM_API(unsigned)
__cudaPushCallConfiguration(Dim3 grid, Dim3 block, std::size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

WARPLOOM_CUDA_API int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, std::size_t* shared,
                                                 void** stream) {
  if (configurations.empty()) return noted(abi::kInvalidValue);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *stream = last.stream;
  return abi::kSuccess;
}

// Null may stand for a kernel that cannot be loaded: its launch says why, once more.
WARPLOOM_CUDA_API int __cudaGetKernel(void** kernel, const void* host) {
  if (kernel == nullptr) return noted(abi::kInvalidValue);
  *kernel = const_cast<void*>(host);
  return function_of(host) != nullptr ? abi::kSuccess : noted(abi::kInvalidPtx);
}

WARPLOOM_CUDA_API int cudaGetSymbolAddress(void** address, const void* symbol) {
  std::size_t bytes = 0;
  return noted(find_variable(symbol, address_at(address), &bytes) ? abi::kSuccess : abi::kNotFound);
}

WARPLOOM_CUDA_API int cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
  uint64_t address = 0;
  return noted(find_variable(symbol, &address, bytes) ? abi::kSuccess : abi::kNotFound);
}

WARPLOOM_CUDA_API int cudaMemcpyToSymbolAsync(const void* symbol, const void* from,
                                              std::size_t bytes, std::size_t offset, int,
                                              void* stream) {
  return noted(copy_symbol(symbol, nullptr, from, bytes, offset, stream));
}

WARPLOOM_CUDA_API int cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                                         std::size_t offset, int kind) {
  return waited(cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr));
}

WARPLOOM_CUDA_API int cudaMemcpyFromSymbolAsync(void* to, const void* symbol, std::size_t bytes,
                                                std::size_t offset, int, void* stream) {
  return noted(copy_symbol(symbol, to, nullptr, bytes, offset, stream));
}

WARPLOOM_CUDA_API int cudaMemcpyFromSymbol(void* to, const void* symbol, std::size_t bytes,
                                           std::size_t offset, int kind) {
  return waited(cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, nullptr));
}
