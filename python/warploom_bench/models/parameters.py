"""Random parameters of language models, which keep the size of activations near 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from warploom_bench.decoder import GROUP

#: Fp8 numbers are this large where the numbers that they stand for are 1: far from both ends.
FP8_ONE = 16.0


class Arrays(Protocol):
    """Where random numbers come from: numpy's or PyTorch's."""

    def normal(self, shape: tuple[int, ...], dtype: str, mean: float, deviation: float) -> Any:
        """Normally distributed numbers of a dtype."""

    def words(self, shape: tuple[int, ...]) -> Any:
        """Random bits, as uint32."""

    def full(self, shape: tuple[int, ...], value: float) -> Any:
        """Float32 numbers that are all the same."""


class NumpyArrays:
    """In memory of the host."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def normal(self, shape: tuple[int, ...], dtype: str, mean: float, deviation: float) -> Any:
        import ml_dtypes

        numbers = mean + deviation * self.rng.standard_normal(shape)
        return numbers.astype(getattr(ml_dtypes, dtype, dtype))

    def words(self, shape: tuple[int, ...]) -> Any:
        return self.rng.integers(0, 1 << 32, shape, "uint32")

    def full(self, shape: tuple[int, ...], value: float) -> Any:
        import numpy as np

        return np.full(shape, value, np.float32)


class TorchArrays:
    """On the GPU. Words are int32 tensors: PyTorch shifts no uint32."""

    def __init__(self, torch: Any, seed: int) -> None:
        self.torch = torch
        self.generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(self, shape: tuple[int, ...], dtype: str, mean: float, deviation: float) -> Any:
        numbers = self.torch.empty(shape, device="cuda", dtype=self.torch.float32)
        numbers.normal_(mean, deviation, generator=self.generator)
        return numbers.to(getattr(self.torch, dtype))

    def words(self, shape: tuple[int, ...]) -> Any:
        bounds = self.torch.iinfo(self.torch.int32)
        return self.torch.randint(
            bounds.min, bounds.max, shape, device="cuda", generator=self.generator,
            dtype=self.torch.int32,
        )  # fmt: skip

    def full(self, shape: tuple[int, ...], value: float) -> Any:
        return self.torch.full(shape, value, device="cuda", dtype=self.torch.float32)


def random_parameters(
    arrays: Arrays, shapes: Mapping[str, tuple[tuple[int, ...], str]]
) -> dict[str, Any]:
    """A parameter for each name, shape and dtype of :func:`language.parameter_shapes`."""
    made = {}
    for name, (shape, dtype) in shapes.items():
        if name.endswith(".words"):
            made[name] = arrays.words(shape)
        elif name.endswith(".scales"):
            # Weights of 4 bits are off their middle by the root of 21.5 on average.
            size = (shape[1] * GROUP * 21.5) ** -0.5
            made[name] = arrays.normal(shape, dtype, size, 0.1 * size)
        elif name.endswith(".x_scale"):
            made[name] = arrays.full(shape, 1 / FP8_ONE)
        elif name.endswith(".scale"):
            inputs = shapes[name.removesuffix("scale") + "weight"][0][1]
            made[name] = arrays.full(shape, inputs**-0.5 / FP8_ONE)
        elif dtype == "float8_e4m3fn":
            made[name] = arrays.normal(shape, dtype, 0.0, FP8_ONE)
        elif name.endswith(".bias"):
            made[name] = arrays.normal(shape, dtype, 0.0, 0.1)
        elif len(shape) == 1:
            made[name] = arrays.normal(shape, dtype, 1.0, 0.1)
        else:
            size = 1.0 if name.startswith("embedding") else shape[-1] ** -0.5
            made[name] = arrays.normal(shape, dtype, 0.0, size)
    return made
