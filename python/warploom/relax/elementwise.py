"""Names of Relax operators that compute each element from one element of each operand."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(f"relax.{name}" for name in text.split())


#: Of one tensor.
UNARY = _names(
    "astype abs clip erf exp log negative sigmoid sqrt rsqrt square sin cos tanh floor ceil round "
    "logical_not nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.silu"
)
#: Of two tensors that are broadcast.
BINARY = _names("add subtract multiply divide maximum minimum power")
#: Of any number of tensors that are broadcast.
BROADCAST = BINARY | _names(
    "full_like where equal not_equal less less_equal greater greater_equal logical_and logical_or"
)
