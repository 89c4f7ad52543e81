"""PyTorch's tensors as TVM sees them, over the same memory, which a view keeps alive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm


def viewed(torch: Any, tensor: Any, dtype: str | None = None) -> Any:
    """A tensor of TVM's over the same memory.

    Parameters
    ----------
    torch : module
    tensor : torch.Tensor
        Contiguous.
    dtype : str, optional
        As TVM sees its elements, of the same size: for dtypes that PyTorch lacks or does not
        exchange (uint32, fp8).
    """
    if dtype is None:
        return tvm.runtime.from_dlpack(tensor)
    same = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    return tvm.runtime.from_dlpack(tensor.view(same))._create_view(tuple(tensor.shape), dtype)


def viewed_parameters(
    torch: Any, parameters: Mapping[str, Any], shapes: Mapping[str, tuple[tuple[int, ...], str]]
) -> dict[str, Any]:
    """All parameters of a model, with the dtypes that it has for them."""
    plain = ("float16", "float32", "bfloat16")
    return {
        name: viewed(torch, parameters[name], None if dtype in plain else dtype)
        for name, (_, dtype) in shapes.items()
    }
