"""The runtime of a process that compiles and launches: libraries, toolchain, driver, caches."""
