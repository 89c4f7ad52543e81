"""Keys by which TVM finds a tensor map that it has made before.

TVM makes a map for each place in the code that copies by TMA, and looks first whether the function
has one already. Its key begins with ``hash(buffer.data)``: the address of an expression that exists
only while the copy is lowered. Memory is used again, so now and then the key of one copy is that of
another: of another buffer with the same name and shape, or of another kernel, whose map does not
exist where this kernel is launched alone (an H200 says "illegal instruction").

The keys made here are never found. :mod:`warploom.lower.host.share_tensor_maps` shares maps when
host and kernels are apart, where it can be seen which maps are the same.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

#: ``(buffer, ...) -> (pointer, key, offset in bytes)`` of TVM.
BaseOf = Callable[..., tuple[Any, str, Any]]


def with_keys_of_their_own(stock: BaseOf) -> BaseOf:
    """TVM's function that finds where a buffer begins, with another key in each call."""
    numbers = itertools.count()

    @functools.wraps(stock)
    def base(*args: Any, **options: Any) -> tuple[Any, str, Any]:
        pointer, _, offset = stock(*args, **options)
        return pointer, f"warploom:{next(numbers)}", offset

    return base
