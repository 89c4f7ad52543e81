"""From tile programs to orchestrated kernels; the README of this folder has its rooms."""
