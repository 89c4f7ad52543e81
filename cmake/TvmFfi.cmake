# Defines warploom::tvm_ffi, the headers of the apache-tvm-ffi package of the Python that builds.
#
# The package brings a CMake config of its own, but that one also imports the shared library.
# Linking it would record the directory of a build environment that pip deletes afterwards.

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)

foreach(flag --includedir --dlpack-includedir)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m tvm_ffi.config ${flag}
    OUTPUT_VARIABLE directory
    OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE status
  )
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no tvm_ffi; run: pip install 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'")
  endif()
  list(APPEND tvm_ffi_include_directories "${directory}")
endforeach()

add_library(warploom_tvm_ffi INTERFACE)
add_library(warploom::tvm_ffi ALIAS warploom_tvm_ffi)
target_include_directories(warploom_tvm_ffi SYSTEM INTERFACE ${tvm_ffi_include_directories})
