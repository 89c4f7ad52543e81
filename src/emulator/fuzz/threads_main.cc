// Two threads that load, launch, copy, change options, read what launches leave, and unload, all at
// the same time: for the thread sanitizer, and for the one that finds leaks.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/driver_api.h"
#include "emulator/fuzz/targets.h"

extern "C" {
int cuModuleLoadData(void** module, const void* image);
int cuModuleUnload(void* module);
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuMemcpyHtoD_v2(uint64_t destination, const void* source, std::size_t bytes);
int cuMemcpyDtoH_v2(void* destination, uint64_t source, std::size_t bytes);
int cuLaunchKernelEx(const warploom::emulator::abi::LaunchConfig* config, void* function,
                     void** arguments, void** extra);
const char* warploom_emulator_reports();
const char* warploom_emulator_launch_reports();
const char* warploom_emulator_exploration();
uint64_t warploom_emulator_instructions();
void warploom_emulator_set_seed(uint64_t seed);
void warploom_emulator_set_checks(int on);
void warploom_emulator_set_report(int on);
void warploom_emulator_set_explore(int64_t count);
void warploom_emulator_set_threads(uint32_t threads);
}

namespace {

using namespace warploom::emulator;  // NOLINT: this is a program of the emulator

constexpr int kThreads = 2;
constexpr unsigned kCtas = 2;

// Each thread of the kernel adds one to a number. The comment makes a module that is not cached.
std::string text_of(int thread, int round) {
  return "// " + std::to_string(thread) + " " + std::to_string(round % 7) +
         "\n.version 9.0\n.target sm_90\n.address_size 64\n"
         ".global .align 8 .b8 scratch[4096];\n"
         ".visible .entry kernel(.param .u64 p)\n{\n"
         ".reg .b64 %d<4>;\n.reg .b32 %r<4>;\n"
         "ld.param.u64 %d0, [p];\nmov.u32 %r0, %tid.x;\nmov.u32 %r2, %ctaid.x;\n"
         "mad.lo.u32 %r0, %r2, 32, %r0;\nmul.wide.u32 %d1, %r0, 4;\n"
         "add.u64 %d0, %d0, %d1;\nld.global.u32 %r1, [%d0];\nadd.u32 %r1, %r1, 1;\n"
         "st.global.u32 [%d0], %r1;\nret;\n}\n";
}

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s: %s\n", what, warploom_emulator_error());
  std::exit(1);
}

void work(int thread, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    void *module = nullptr, *function = nullptr;
    require(cuModuleLoadData(&module, text_of(thread, round).c_str()) == 0, "load");
    require(cuModuleGetFunction(&function, module, "kernel") == 0, "function");
    std::vector<uint32_t> numbers(kCtas * 32, static_cast<uint32_t>(round));
    const std::size_t bytes = numbers.size() * sizeof(uint32_t);
    auto buffer = reinterpret_cast<uint64_t>(warploom_emulator_allocate(bytes));
    require(buffer != 0, "allocate");
    require(cuMemcpyHtoD_v2(buffer, numbers.data(), bytes) == 0, "copy to the device");
    warploom_emulator_set_seed(static_cast<uint64_t>(round));
    warploom_emulator_set_checks(round % 2);
    warploom_emulator_set_report(round % 3 == 0);
    warploom_emulator_set_explore(round % 5 == 0 ? 2 : 0);
    warploom_emulator_set_threads(static_cast<uint32_t>(round) % 3);
    abi::LaunchConfig config{{kCtas, 1, 1}, {32, 1, 1}, 0, nullptr, nullptr, 0};
    void* arguments[] = {&buffer};
    require(cuLaunchKernelEx(&config, function, arguments, nullptr) == 0, "launch");
    require(cuMemcpyDtoH_v2(numbers.data(), buffer, bytes) == 0, "copy from the device");
    for (uint32_t number : numbers) require(number == static_cast<uint32_t>(round) + 1, "result");
    for (const char* text : {warploom_emulator_reports(), warploom_emulator_launch_reports(),
                             warploom_emulator_exploration()}) {
      require(std::strlen(text) < 1 << 30, "text");
    }
    require(warploom_emulator_instructions() != 0, "instructions");
    require(warploom_emulator_release(reinterpret_cast<void*>(buffer)) == 0, "release");
    require(cuModuleUnload(module) == 0, "unload");
    require(cuModuleUnload(module) != 0, "a module is unloaded once");
    require(cuLaunchKernelEx(&config, function, arguments, nullptr) != 0,
            "a kernel is gone with its module");
  }
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count > 1 ? std::atoi(words[1]) : 100;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread, rounds);
  for (std::thread& thread : threads) thread.join();
  std::printf("%d threads, %d rounds\n", kThreads, rounds);
  return 0;
}
