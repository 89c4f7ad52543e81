# Defines, with WARPLOOM_FUZZ, what executes hostile inputs (src/emulator/fuzz):
#
#   warploom_fuzz      a target of libFuzzer with clang, else a program that replays inputs
#   warploom_threads   several threads that use the emulated driver at the same time
#
# With WARPLOOM_SANITIZE they find errors of memory, undefined behaviour and data races. To fuzz:
#   cmake -B build -DCMAKE_CXX_COMPILER=clang++ -DWARPLOOM_SANITIZE=address -DWARPLOOM_FUZZ=ON
#   cmake --build build --target warploom_fuzz
#   build/warploom_fuzz -dict=tests/emulator/corpus.dict new_inputs tests/emulator/corpus

option(WARPLOOM_FUZZ "Build the programs that fuzz the emulator" OFF)
if(NOT WARPLOOM_FUZZ)
  return()
endif()

set(fuzz_dir "${emulator_dir}/fuzz")
set(fuzz_libraries warploom_emulator_core warploom_emulator_driver warploom::warnings)

add_executable(
  warploom_fuzz ${fuzz_dir}/entry_point.cc ${fuzz_dir}/ptx_target.cc
  ${fuzz_dir}/tensor_map_target.cc ${fuzz_dir}/print_format_target.cc)
target_link_libraries(warploom_fuzz PRIVATE ${fuzz_libraries})
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  foreach(target warploom_emulator_core warploom_emulator_driver)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endforeach()
  target_compile_options(warploom_fuzz PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(warploom_fuzz PRIVATE -fsanitize=fuzzer)
else()
  target_sources(warploom_fuzz PRIVATE ${fuzz_dir}/replay_main.cc)
endif()

add_executable(warploom_threads ${fuzz_dir}/threads_main.cc)
target_link_libraries(warploom_threads PRIVATE ${fuzz_libraries})
