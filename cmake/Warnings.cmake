# Defines warploom::warnings, the compiler warnings that every target of this project enables.

add_library(warploom_warnings INTERFACE)
add_library(warploom::warnings ALIAS warploom_warnings)
target_compile_options(warploom_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
