"""Instructions of nests, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx import Var

from warploom.decide.price.instructions import of_nest, together
from warploom.decide.price.work import Nest
from warploom.tile import ir
from warploom.tile.statement import view

_ROWS, _COLUMNS = 64, 32
_ALL = _ROWS * _COLUMNS


def _tile(name: str, dtype: str = "float32", scope: str = "fragment", shape: Any = None) -> Any:
    return tirx.decl_buffer(shape or (_ROWS, _COLUMNS), dtype, name, scope=scope)


def _count(to: Any, make: Any) -> Nest:
    i, j = Var("i", "int32"), Var("j", "int32")
    store = tirx.BufferStore(to, make(i, j), [i, j])
    nest = view(ir.nest([i, j], [_ROWS, _COLUMNS], [store]))
    return of_nest(nest, {i: float(_ROWS), j: float(_COLUMNS)})


_X, _Y, _V = _tile("x"), _tile("y"), _tile("v", shape=(_ROWS,))
_HALF, _SHARED = _tile("h", "float16"), _tile("s", "float16", "shared")

_CASES = {
    "copy": (_Y, lambda i, j: _X[i, j], Nest()),
    "add": (_Y, lambda i, j: _X[i, j] + _Y[i, j], Nest(fma=_ALL)),
    "multiply and add": (_Y, lambda i, j: _X[i, j] * _Y[i, j] + _X[i, j], Nest(fma=_ALL)),
    "a product of rows once a row": (
        _Y, lambda i, j: _X[i, j] * T.float32(2) - _V[i] * T.float32(2), Nest(fma=_ALL + _ROWS),
    ),
    "exp2": (_Y, lambda i, j: T.exp2(_X[i, j]), Nest(mufu=_ALL)),
    "exp": (_Y, lambda i, j: T.exp(_X[i, j]), Nest(mufu=_ALL, fma=_ALL)),
    "divide by a row": (_Y, lambda i, j: _X[i, j] / _V[i], Nest(mufu=_ALL, fma=3 * _ALL)),
    "maximum": (_Y, lambda i, j: T.max(_X[i, j], _Y[i, j]), Nest(alu=_ALL)),
    "to 16 bits": (_HALF, lambda i, j: T.cast(_X[i, j], "float16"), Nest(convert=_ALL / 2)),
    "half": (_HALF, lambda i, j: _HALF[i, j] + _HALF[i, j], Nest(fma=_ALL / 2)),
    "from shared memory": (_HALF, lambda i, j: _SHARED[i, j], Nest(shared=_ALL / 2)),
    "to shared memory": (_SHARED, lambda i, j: _HALF[i, j], Nest(shared=_ALL / 2)),
    "a constant": (_Y, lambda i, j: T.float32(0), Nest()),
    "indices are free": (_Y, lambda i, j: _X[i, (j * 2 + 1) % 32], Nest()),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_instructions(name: str) -> None:
    to, make, expected = _CASES[name]
    assert _count(to, make) == expected


def test_nests_of_a_step_add_up() -> None:
    nests = [(Nest(fma=1.0, mufu=2.0), 0.5), (Nest(fma=4.0, reductions=1.0), 2.0)]
    assert together(nests) == Nest(fma=8.5, mufu=1.0, reductions=2.0)
    assert together([]) == Nest()
