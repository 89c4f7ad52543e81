"""What a process needs to compile and launch: libraries, toolchain, driver, folders of caches."""
