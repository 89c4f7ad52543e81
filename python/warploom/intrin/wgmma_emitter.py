"""``wl.WgmmaEmitter``: the instructions of one matmul on Hopper, all at once or one by one.

The matmul D = A Bᵀ (+ D) of a warpgroup is a grid of *atoms*, one ``wgmma.mma_async`` each:
``blocks`` of 64 rows, ``widths`` of columns, ``steps`` of 32 bytes of K. ``gemm_async`` issues them
in the order of :meth:`WgmmaEmitter.atoms`; an author who has work of his own to do between atoms
issues them himself, and gets the same instructions.

Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.ir import TensorRegion
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer

from warploom.errors import IllegalCombination
from warploom.intrin.operand_fence import pinned, register_dtype
from warploom.intrin.wgmma import instruction
from warploom.intrin.wgmma_metadata import Registers
from warploom.intrin.wgmma_operands import (
    Accumulator,
    RegisterOperand,
    read_accumulator,
    read_register_a,
    registers,
)
from warploom.intrin.wgmma_part import ONE_WARPGROUP, WgmmaPart, as_region, index_of
from warploom.intrin.wgmma_wait import pending_groups, require_pending
from warploom.target.swizzle import Major
from warploom.target.wgmma import WGMMA_M


@dataclass(frozen=True)
class WgmmaEmitter(WgmmaPart):
    """The instructions of a :class:`~warploom.intrin.wgmma_matmul.WgmmaMatmul`.

    :meth:`of` makes one from dtypes; then, within a kernel::

        product = wl.WgmmaEmitter.of(64, 128, 64, "float16")
        ...
        acc = T.alloc_buffer((64, 128), "float32", scope="local", layout=product.d_layout)
        b: T.uint64 = product.b_descriptor(B_s[stage, :, :])
        product.arrive()
        product.rs_atom(acc, p, b, 0, 0, 0, accum=False)  # one instruction
        ...
        product.commit()
        product.wait(0)
        product.fence_d(acc)

    Where several warpgroups share the matmul, each emits its part with :meth:`at`: operands in
    shared memory are then those of the whole CTA, and registers those of the warpgroup::

        product = wl.WgmmaEmitter.of(128, 256, 64, "float16", block_row_warps=8)
        ...
        acc = T.alloc_buffer((64, 256), "float32", scope="local", layout=product.d_layout)
        mine = T.meta_var(product.at(warpgroup))
        mine.ss(acc, A_s[stage, :, :], B_s[stage, :, :], k > 0, wait=0)
        row, column = mine.origin
    """

    def ss(
        self, d: Any, a: Any, b: Any, accum: Any = True, *, wait: bool | int | None = None,
        metadata: Any = None,
    ) -> None:  # fmt: skip
        """Issue the whole matmul, both operands in shared memory.

        Parameters
        ----------
        d : Buffer or TensorRegion
            ``m x n`` elements of a register tile with :attr:`d_layout`.
        a, b : Buffer, TensorRegion or Expr
            Parts of shared buffers, or their descriptors.
        accum : bool or Expr
            Whether the result is added to D; else D is overwritten.
        wait : bool, int or None
            By default only the instructions are issued. With a number, 0 to 7, or with True, which
            means 0, :meth:`arrive` comes before them, and :meth:`commit` and a :meth:`wait` for
            that number after them. Operands of the groups that it leaves pending must not be
            written, and their D not be read, until a later wait.
        metadata : Buffer or TensorRegion, optional
            Of a sparse A: row-major uint8 in shared memory, as :mod:`warploom.sparse` has it. All
            threads load theirs, and then execute :meth:`arrive`, whatever ``wait`` is.

        Raises
        ------
        IllegalCombination
            If an operand does not fit the emitter, or ``wait`` is out of range.
        """
        self._whole(d, self.shared_operand(a, "A"), b, accum, wait, metadata)

    def rs(
        self, d: Any, a: Any, b: Any, accum: Any = True, *, wait: bool | int | None = None,
        metadata: Any = None,
    ) -> None:  # fmt: skip
        """As :meth:`ss`, with A in registers: a tile, or a part, with :attr:`a_layout`.

        A write of threads to A's registers before :meth:`wait` is a race with the tensor core.
        """
        self._whole(d, self.registers_of_a(a), b, accum, wait, metadata)

    def _whole(self, d: Any, a: Any, b: Any, accum: Any, wait: Any, metadata: Any) -> None:
        pending = pending_groups(wait)
        d, b = self.accumulator(d), self.shared_operand(b, "B")
        words = self._views(d, a)
        held = self.metadata_of(metadata)
        if held is not None:
            held = held.load(self.kind, self.blocks, self.steps)
        if pending is not None or held is not None:
            self.arrive()
        for i, j, k in self.atoms():
            self._atom(d, a, b, i, j, k, accum, *words, held)
        if pending is not None:
            self.commit()
            self.wait(pending)

    def ss_atom(self, d: Any, a: Any, b: Any, i: Any, j: Any, k: Any, accum: Any = True) -> None:
        """Issue one instruction of :meth:`ss`.

        Parameters
        ----------
        i, j, k : int or Expr
            Which one: indices below :attr:`blocks`, the number of :attr:`widths`, and
            :attr:`steps`. Variables have to be those of unrolled loops; ``j`` must be a number
            where widths differ.
        accum : bool or Expr
            Of the whole matmul: an atom with ``k > 0`` adds to those before it in any case, so
            those with ``k == 0`` come first.

        Raises
        ------
        IllegalCombination
            As :meth:`ss`, or if an index is out of bounds.
        """
        self._one(d, self.shared_operand(a, "A"), b, i, j, k, accum)

    def rs_atom(self, d: Any, a: Any, b: Any, i: Any, j: Any, k: Any, accum: Any = True) -> None:
        """Issue one instruction of :meth:`rs`; parameters as for :meth:`ss_atom`."""
        self._one(d, self.registers_of_a(a), b, i, j, k, accum)

    def _one(self, d: Any, a: Any, b: Any, i: Any, j: Any, k: Any, accum: Any) -> None:
        if self.kind.sparse:
            raise IllegalCombination(
                "wgmma: atoms of a sparse A share registers of metadata; issue the whole matmul "
                "with ss or rs."
            )
        i, j, k = map(index_of, (i, j, k))
        limits = (("i", i, self.blocks), ("j", j, len(self.widths)), ("k", k, self.steps))
        for name, index, count in limits:
            if isinstance(index, int) and not 0 <= index < count:
                raise IllegalCombination(
                    f"wgmma: atom index {name} = {index} is not within 0 to {count - 1}."
                )
        if not isinstance(j, int) and len(set(self.widths)) > 1:
            raise IllegalCombination(
                f"wgmma: atom index j = {j} must be a number, since instructions have different "
                f"widths: {', '.join(map(str, self.widths))}."
            )
        d, b = self.accumulator(d), self.shared_operand(b, "B")
        self._atom(d, a, b, i, j, k, accum, *self._views(d, a))

    def _views(self, d: Accumulator, a: Any) -> tuple[Any, Any]:
        """The registers of D, and those of A if it has any."""
        in_registers = isinstance(a, RegisterOperand)
        d_words = registers(d.buffer, "float32" if self.kind.d == "float32" else "uint32")
        return d_words, registers(a.buffer) if in_registers else None

    def _atom(
        self, d: Accumulator, a: Any, b: Any, i: Any, j: Any, k: Any, accum: Any, d_words: Any,
        a_words: Any, metadata: Registers | None = None,
    ) -> None:  # fmt: skip
        kind, simplify = self.kind, Analyzer().simplify
        whole = isinstance(j, int)
        width = self.widths[j if whole else 0]
        column = sum(self.widths[:j]) if whole else j * width
        first = _simplified(simplify, d.first_register(kind, i, column))
        held = [d_words[first + at] for at in range(kind.d_registers(width))]
        if isinstance(a, RegisterOperand):
            first = _simplified(simplify, a.first_register(kind, i, k))
            left = [a_words[first + at] for at in range(kind.a_registers)]
        else:
            left = [a.descriptor(i * WGMMA_M, k * kind.a_k)]
        right = [b.descriptor(column, k * kind.k)]
        if metadata is not None:
            right += metadata.operands(i, k)
        emit = instruction(kind, width, self.satfinite)
        T.evaluate(emit(*held, *left, *right, _predicate(accum, k), *self._immediates(a)))

    def _immediates(self, a: Any) -> list[int]:
        """``imm-scale-a/b`` and ``imm-trans-a/b``, as far as the instruction has them."""
        values = [-1 if negate else 1 for negate in self.negate] if self.kind.negate else []
        if self.kind.transpose:
            shared = [self.b] if isinstance(a, RegisterOperand) else [self.a, self.b]
            values += [int(operand.major is Major.MN) for operand in shared]
        return values

    # --- order ---

    def arrive(self) -> None:
        """``wgmma.fence``: the next atoms read the registers that threads wrote."""
        T.evaluate(T.ptx.wgmma.fence.sync.aligned())

    def commit(self) -> None:
        """``wgmma.commit_group``: the atoms issued since the last one are a group."""
        T.evaluate(T.ptx.wgmma.commit_group.sync.aligned())

    def wait(self, groups: int = 0) -> None:
        """``wgmma.wait_group``: at most ``groups``, 0 to 7, of the latest groups are pending.

        Raises
        ------
        IllegalCombination
            If ``groups`` is no such constant.
        """
        T.evaluate(T.ptx.wgmma.wait_group.sync.aligned(require_pending(groups)))

    def fence_d(self, d: Any) -> None:
        """No computation on the registers of D is moved across this; it costs no instruction.

        After :meth:`wait`, before D is used, and before :meth:`arrive`, after it was. ``d`` may be
        any part of a register tile that a matmul can write.
        """
        tile = read_accumulator(_register_region(d), ONE_WARPGROUP, Analyzer())
        dtype = register_dtype(str(tile.buffer.dtype))
        words, count = registers(tile.buffer, dtype), self.kind.d_registers(tile.n)
        for block in range(tile.m // WGMMA_M):
            _pin(words, dtype, tile.first_register(self.kind, block, 0), count)

    def fence_a(self, a: Any) -> None:
        """The same for A in registers, or a part of it."""
        tile = read_register_a(_register_region(a), False, self.kind, ONE_WARPGROUP, Analyzer())
        words, count = registers(tile.buffer), tile.k // self.kind.a_k * self.kind.a_registers
        for block in range(tile.mn // WGMMA_M):
            _pin(words, "uint32", tile.first_register(self.kind, block, 0), count)


def _simplified(simplify: Any, index: Any) -> Any:
    return index if isinstance(index, int) else simplify(index)


def _predicate(accum: Any, k: Any) -> Any:
    """``scale-d``: D is kept by all atoms but those of the first step of K."""
    if isinstance(k, int):
        return T.ptx.pred(1 if k else T.cast(accum, "bool"))
    return T.ptx.pred(T.Or(k > 0, T.cast(accum, "bool")))


def _register_region(value: Any) -> TensorRegion:
    region = as_region(value)
    if region is None or region.source.scope() != "local":
        raise IllegalCombination("wgmma: only register tiles (scope 'local') have operand fences.")
    return region


def _pin(words: Any, dtype: str, first: int, count: int) -> None:
    for at in range(first, first + count):
        T.evaluate(pinned(words[at], dtype))
