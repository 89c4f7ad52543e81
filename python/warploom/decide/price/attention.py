"""The work of :mod:`warploom.programs.attention` with a tile, by formulas: microseconds a tile."""

from __future__ import annotations

from warploom.decide.price.chunks import alignment, store_lines
from warploom.decide.price.work import (
    CHUNK_COLUMNS,
    UNKNOWN_EXTENT,
    Load,
    Mma,
    Nest,
    TileOut,
    Work,
    lines_touched,
)
from warploom.lower.grid.persistent import DEFAULT_GROUP
from warploom.target import WGMMA_M, wgmma_kind

#: Bytes of an element of an operand, and of a sum.
_BYTES, _SUM_BYTES = 2, 4


def attention_work(
    tokens: int | None, head_dim: int, heads: int, kv_heads: int, batch: int, causal: bool,
    tile: tuple[int, int], stages: int, keys: int | None = None, together: int | None = None,
    order_mmas: bool = False, capped: bool = False,
) -> Work:  # fmt: skip
    """What the kernel does; tokens that are dynamic count as ``UNKNOWN_EXTENT``.

    Parameters
    ----------
    tokens, head_dim, heads, kv_heads, batch : int
        Sizes; None for tokens that a call decides.
    causal : bool
        Whether a query sees only the keys up to its own position.
    tile : (int, int)
        Queries and keys of a step.
    stages : int
        Steps that are loaded ahead.
    keys : int, optional
        As many as queries if left out.
    together : int, optional
        Heads, of all batches, whose tiles follow each other, the longest first, if ``causal``; all
        of a batch if left out.
    order_mmas : bool
        Whether warpgroups issue their MMAs in order.
    capped : bool
        Whether logits have a soft cap.
    """
    tokens = tokens or UNKNOWN_EXTENT
    every_key = keys or tokens
    queries, keys = tile
    rows, blocks = -(-tokens // queries), -(-every_key // keys)
    # The last block perhaps has not all keys. Logits of the others are masked.
    steps: float = blocks
    masked: float = bool(every_key % keys)
    grid, repeats, group, lengths = (rows, heads), batch, DEFAULT_GROUP, ()
    of_a_head = False, True
    if causal:  # on the diagonal as well, by two comparisons
        ends = steps_of_tiles(tokens, every_key, tile)
        whole = sum(min(row * queries // keys, blocks) for row in range(rows))
        steps, masked = sum(ends) / rows, 3 * (sum(ends) - whole) / rows
        together = together or heads
        grid, repeats, group = (together, rows), batch * heads // together, together
        of_a_head = True, False
        lengths = tuple(map(float, ends)) if ends[0] > ends[-1] else ()
    kind = wgmma_kind("float16", "float16", "float32")
    wide = -(-head_dim // kind.k) * kind.k  # what the MMAs contract, with zeros behind the head
    row_bytes, wide_bytes = head_dim * _BYTES, wide * _BYTES

    def streamed(row: int) -> tuple[float, float, float]:
        """Rows of K or V: lines for each that they fill, bytes of a CTA, bytes of the kernel."""
        run = min(float(every_key * row), steps * keys * row)
        return lines_touched(row, row_bytes), run, float(every_key * row * batch * kv_heads)

    of_keys = Load(keys, wide_bytes, every_key, of_a_head, 1, *streamed(wide_bytes))
    of_values = Load(head_dim, keys * _BYTES, head_dim, of_a_head, 1, *streamed(row_bytes))
    of_queries = Load(
        queries, wide_bytes, tokens, (True, True), 1, lines_touched(wide_bytes, row_bytes),
        queries * wide_bytes, float(tokens * wide_bytes * batch * heads),
    )  # fmt: skip
    elements = min(tokens, rows * queries) * head_dim * heads * batch
    out = TileOut(
        queries, head_dim, _BYTES, False, CHUNK_COLUMNS,
        store_lines(head_dim, _BYTES, CHUNK_COLUMNS, row_bytes),
        alignment(row_bytes), float(elements),
    )  # fmt: skip
    return Work(
        grid, repeats, steps, (of_keys, of_values),
        (Mma(kind, queries, keys, wide), Mma(kind, queries, head_dim, keys, True)), (out,),
        nest=_softmax(queries, keys, head_dim, masked / steps, capped),
        prologue=(of_queries,),
        # Each element is divided by the total of its row: a reciprocal and its refinement.
        finish=Nest(fma=3.0 * queries * head_dim, mufu=float(queries * head_dim)),
        sum_bytes=queries * (keys + head_dim) * _SUM_BYTES,
        stages=stages,
        order_mmas=order_mmas,
        consumers=next(n for n in (3, 2, 1) if queries % (n * WGMMA_M) == 0),
        group=group,
        lengths=lengths,
    )  # fmt: skip


def steps_of_tiles(tokens: int, keys: int, tile: tuple[int, int]) -> list[int]:
    """Steps of the tiles of a head under a causal mask, in the order of their grid.

    Parameters
    ----------
    tokens, keys : int
        Queries and keys.
    tile : (int, int)
        Queries and keys of a step.

    Examples
    --------
    >>> steps_of_tiles(512, 512, (128, 128))
    [4, 3, 2, 1]
    """
    rows, blocks = -(-tokens // tile[0]), -(-keys // tile[1])
    return [min(-(-(row + 1) * tile[0] // tile[1]), blocks) for row in reversed(range(rows))]


def _softmax(queries: int, keys: int, head_dim: int, masked: float, capped: bool) -> Nest:
    """The statements between the MMAs of a step; ``masked`` instructions a logit mask it.

    A soft cap is a multiplication and a tanh.
    """
    logits = queries * keys
    return Nest(
        # Logits are scaled and added; sums are scaled; a row's maximum and total take four.
        fma=(2.0 + capped) * logits + queries * (head_dim + 4),
        alu=logits * (1 + masked),
        mufu=float((1 + capped) * logits + queries),
        convert=logits / 2,
        reductions=2.0,
    )
