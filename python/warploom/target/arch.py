"""The supported architectures and the GPUs that have them, in one place to import from."""

from warploom.target.gpus import GPUS, Gpu
from warploom.target.limits import ARCHS, SM90A, SM100A, Arch, RegisterRange, TensorMemory

__all__ = ["ARCHS", "GPUS", "SM90A", "SM100A", "Arch", "Gpu", "RegisterRange", "TensorMemory"]
