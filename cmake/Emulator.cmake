# Defines the emulator: warploom_emulator_core, all of it but the interface of CUDA, and the two
# libraries that stand in for libcuda.so.1 and libcudart.so.13. They are two, because a library has
# one SONAME, and because TVM's runtime asks for versioned symbols of the latter.

set(emulator_dir "${CMAKE_CURRENT_SOURCE_DIR}/src/emulator")

# A folder is a room; src/emulator/README.md says what is in each. Those of the host follow below.
set(rooms
    base ptx format memory matrix tensor async check
    exec/machine exec/isa exec/isa/arithmetic exec/isa/movement exec/isa/control
    exec/isa/tensor_core exec/schedule)
list(TRANSFORM rooms REPLACE "(.+)" "${emulator_dir}/\\1/*.cc" OUTPUT_VARIABLE room_globs)
file(GLOB emulator_sources CONFIGURE_DEPENDS ${room_globs})
add_library(warploom_emulator_core OBJECT ${emulator_sources})
target_include_directories(warploom_emulator_core PUBLIC src)
# Clusters run in threads; whatever links the core needs the library of the platform.
find_package(Threads REQUIRED)
target_link_libraries(warploom_emulator_core PUBLIC Threads::Threads PRIVATE warploom::warnings)

file(
  GLOB driver_sources CONFIGURE_DEPENDS
  ${emulator_dir}/exec/launch/*.cc ${emulator_dir}/image/*.cc ${emulator_dir}/driver/*.cc)
add_library(warploom_emulator_driver OBJECT ${driver_sources})
target_include_directories(warploom_emulator_driver PRIVATE src)
target_link_libraries(warploom_emulator_driver PRIVATE warploom::warnings)

# Without optimisation nine tenths of a build are these headers. Other builds parse them in each
# file, so that a file that forgets an #include is found.
if(WARPLOOM_SANITIZE)
  target_precompile_headers(
    warploom_emulator_core PRIVATE <algorithm> <array> <atomic> <cinttypes> <cmath>
    <condition_variable> <cstring> <functional> <map> <memory> <mutex> <optional> <string> <thread>
    <unordered_map> <vector>)
  target_precompile_headers(warploom_emulator_driver REUSE_FROM warploom_emulator_core)
endif()

# In the place of libcuda.so.1, and beside whatever has that place.
add_library(warploom_emulator SHARED)
target_link_options(warploom_emulator PRIVATE "LINKER:-soname,libcuda.so.1")
add_library(warploom_emulator_local SHARED)
foreach(library warploom_emulator warploom_emulator_local)
  target_link_libraries(${library} PRIVATE warploom_emulator_driver warploom_emulator_core)
  set_target_properties(${library} PROPERTIES NO_SONAME ON)
  # Calls of own functions must not reach a real driver in the same process.
  target_link_options(${library} PRIVATE "LINKER:--no-undefined" "LINKER:-Bsymbolic")
endforeach()

# Its device memory is that of warploom_emulator, which is loaded before it.
set(cudart_symbols "${emulator_dir}/driver/runtime/libcudart.map")
file(GLOB cudart_sources CONFIGURE_DEPENDS ${emulator_dir}/driver/runtime/*.cc)
add_library(
  warploom_emulator_cudart SHARED ${cudart_sources} ${emulator_dir}/driver/error_names.cc)
target_include_directories(warploom_emulator_cudart PRIVATE src)
target_link_libraries(warploom_emulator_cudart PRIVATE warploom_emulator warploom::warnings)
set_target_properties(
  warploom_emulator_cudart PROPERTIES NO_SONAME ON LINK_DEPENDS "${cudart_symbols}")
target_link_options(
  warploom_emulator_cudart PRIVATE "LINKER:-soname,libcudart.so.13"
  "LINKER:--version-script,${cudart_symbols}")
