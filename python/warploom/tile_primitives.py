"""Tile primitives beside those of TVM: scans, extremes, sorts, atomic updates, rows by index.

They are operators of TVM like its own, ``Tx.cta.cumsum(dst, src, axis)``, so that scripts print and
parse. :mod:`warploom.language.rules` says what is legal, :mod:`warploom.language.interpreter` what
they compute; passes write them in terms of other statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Option of a reduction over rows: how many blocks of rows there are, each with its own result.
BLOCKS = "blocks"
#: Scans along an axis; their names are numpy's.
SCANS = ("cumsum", "cumprod", "cummax", "cummin")
#: Positions of the largest and of the smallest element along an axis.
POSITIONS = ("argmax", "argmin")
#: Updates of global memory that no other update comes between.
ATOMICS = ("atomic_add", "atomic_max", "atomic_min")
#: Copies of rows of global memory that have an index each, to a tile and from one.
GATHER, SCATTER = "gather", "scatter"


def scan(dst: Any, src: Any, axis: int = -1, reverse: bool = False) -> list[Any]:
    """``Tx.cta.cumsum``, ``cumprod``, ``cummax``, ``cummin``: each element with all before it.

    Parameters
    ----------
    dst, src : Buffer or TensorRegion
        Tiles of one dtype and shape; they may be the same.
    axis : int
        The axis along which it goes.
    reverse : bool
        Whether it begins at the end of the axis.
    """
    return [dst, src, int(axis), bool(reverse)]


def position(dst: Any, src: Any, axis: int = -1) -> list[Any]:
    """``Tx.cta.argmax``, ``argmin``: where along an axis the extreme is, the first of several.

    Parameters
    ----------
    dst : Buffer or TensorRegion
        A tile of int32, of the shape of the source without the axis, or with 1 in its place.
    """
    return [dst, src, int(axis)]


def sort(
    dst: Any, src: Any, axis: int = -1, descending: bool = False, indices: Any = None
) -> list[Any]:
    """``Tx.cta.sort``: the elements along an axis in order, equal ones as they were.

    Parameters
    ----------
    dst, src : Buffer or TensorRegion
        Tiles of one dtype and shape; they may be the same.
    indices : Buffer or TensorRegion, optional
        A tile of int32 of that shape, which gets the place along the axis of each element.
    """
    return [dst, src, int(axis), bool(descending), *([] if indices is None else [indices])]


def atomic(dst: Any, src: Any) -> list[Any]:
    """``Tx.cta.atomic_add``, ``atomic_max``, ``atomic_min``: update global memory with a tile.

    Parameters
    ----------
    dst : TensorRegion
        In global memory; elements outside of the buffer are left out. Several CTAs may update it.
    src : Buffer or TensorRegion
        A tile of that dtype and of as many elements in each dimension.
    """
    return [dst, src]


def of_rows(dst: Any, src: Any, *rows: Any) -> list[Any]:
    """``Tx.cta.gather`` and ``scatter``: rows of global memory that have an index each.

    ``Tx.cta.gather(X_s, X[0:M, k : k + 64], lambda r: Token[r])`` loads row ``Token[r]`` of X into
    row r of the tile X_s, and ``Tx.cta.scatter(C[0:M, 0:64], out, lambda r: Token[r])`` stores row
    r of a tile there. A row outside of the tensor reads as 0, and is not stored.

    Parameters
    ----------
    dst, src : Buffer or TensorRegion
        A tile of two dimensions, and a region of global memory of the same dtype: its last
        dimension has the columns, the others are whole.
    rows : callable
        From the number of a row of the tile to an index of the tensor: one for each of its
        dimensions before the last. Rows that a kernel stores must differ.
    """
    from tvm.tirx.tile_primitive import LambdaExpr

    places = [row if isinstance(row, LambdaExpr) else LambdaExpr(row) for row in rows]
    return [dst, src, *places]


#: Name -> what makes its arguments.
BUILDERS: dict[str, Callable[..., list[Any]]] = {
    **dict.fromkeys(SCANS, scan),
    **dict.fromkeys(POSITIONS, position),
    "sort": sort,
    **dict.fromkeys(ATOMICS, atomic),
    GATHER: of_rows,
    SCATTER: of_rows,
}


def register(namespace: Any, builder: Any) -> None:
    """Add the primitives to TVM's operators and to ``Tx``.

    Parameters
    ----------
    namespace : module
        ``tvm.script.tirx.tile``.
    builder : module
        TVM's script builder for TIRx.
    """
    from tvm.ir.op import register_op_attr

    for name, arguments in BUILDERS.items():
        op = f"tirx.tile.{name}"
        register_op_attr(op, "TScriptPrinterName", name)
        register_op_attr(op, "TIRxOpCategory", "tile_primitive")
        setattr(namespace, name, builder.ScopedOp(_statement(builder, op, arguments)))


def _statement(builder: Any, op: str, arguments: Callable[..., list[Any]]) -> Callable[..., Any]:
    def primitive(
        *operands: Any, scope: Any = None, dispatch: str | None = None, **options: Any
    ) -> Any:
        from tvm.ir import Op, TensorLoad, TensorRegion
        from tvm.tirx import is_buffer_var
        from tvm.tirx.tile_primitive import TilePrimitiveCall

        def region(operand: Any) -> Any:
            if isinstance(operand, TensorLoad):  # as TVM prints a region of one element
                return operand.source[tuple(slice(i, i + 1) for i in operand.indices)]
            if is_buffer_var(operand) or isinstance(operand, TensorRegion):
                return builder._to_region(operand)
            return operand

        made = map(region, arguments(*operands, **options))
        call = TilePrimitiveCall(*made, op=Op.get(op), dispatch=dispatch, scope=scope)
        return builder.f_insert(call)

    primitive.__doc__ = arguments.__doc__
    return primitive
