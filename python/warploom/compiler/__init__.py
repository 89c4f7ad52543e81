"""Compilation of CUDA kernels: cached, with the compiler's output, and reports on the result."""
