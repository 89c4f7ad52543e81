"""The convolutions and stages of ResNet-50 that ``bench convolution`` measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from warploom_bench.resnet import ResnetConfig

#: Images of all shapes.
IMAGES = 32
#: (rows and columns, channels, filters, taps along a side, stride) of ResNet-50.
LAYERS = (
    (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1), (56, 256, 512, 1, 2),
    (56, 128, 128, 3, 2), (28, 128, 128, 3, 1), (28, 256, 256, 3, 2), (14, 256, 256, 3, 1),
    (14, 512, 512, 3, 2), (7, 512, 512, 3, 1), (56, 256, 256, 3, 1), (28, 256, 256, 3, 1),
)  # fmt: skip
#: Stages of ResNet-50 behind the first: size and channels that come in, width, blocks, stride.
STAGES = ((56, 64, 64, 3, 1), (56, 256, 128, 4, 2))


@dataclass(frozen=True)
class ConvolutionShape:
    """A convolution that keeps the size of images but for its stride.

    Attributes
    ----------
    group : str
        Shapes of a group are summarised together.
    n, size, c, k : int
        Images, their rows and columns, channels, and filters.
    taps, stride : int
        Of the filters, along a side.
    dtype : str
    """

    HEADER: ClassVar[str] = "images, filters"
    group: str
    n: int
    size: int
    c: int
    k: int
    taps: int
    stride: int
    dtype: str = "float16"
    target: float | None = None

    def __str__(self) -> str:
        return (
            f"{self.n}x{self.size}x{self.size}x{self.c}, {self.k} of {self.taps}x{self.taps}"
            f"{f' stride {self.stride}' if self.stride > 1 else ''} {self.dtype}"
        )

    @property
    def padding(self) -> int:
        return self.taps // 2

    @property
    def side(self) -> int:
        """Rows, and columns, of the result."""
        return (self.size + 2 * self.padding - self.taps) // self.stride + 1

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.n * self.side**2 * self.k * self.taps**2 * self.c


@dataclass(frozen=True)
class StageShape:
    """A stage of ResNet from end to end; ``sizes`` are fields of its :class:`ResnetConfig`."""

    HEADER: ClassVar[str] = "stage"
    group: str
    sizes: dict[str, Any]
    target: float | None = None

    @property
    def config(self) -> ResnetConfig:
        return ResnetConfig(**self.sizes)

    def __str__(self) -> str:
        return str(self.config)

    @property
    def operations(self) -> int:
        """Multiplications and additions of the convolutions."""
        return self.config.operations
