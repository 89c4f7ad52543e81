"""The largest numbers of each row and where they are: routing of experts, sampling of tokens.

A warp has a chunk of a row in registers, as integers that are ordered like the numbers. Each round
finds the largest of all lanes and takes it out, so that k rounds give k numbers in order. Longer
rows are cut into chunks, and another launch searches what the chunks have left.
"""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T
from tvm.tirx import PrimFunc

from warploom.errors import IllegalCombination
from warploom.kernels.kernel_name import named
from warploom.target.dtypes import bits_of, with_dtype_names

WARP = 32
#: Warps of a CTA. Four have enough loads in flight, and few of a small batch stand idle.
_WARPS = 4
#: Elements of a chunk: 32 registers of each lane.
CHUNK = 32 * WARP
#: Numbers that a row can be asked for: a round each, and two registers of a lane hold them.
MOST = 2 * WARP
DTYPES = ("float32", "float16", "bfloat16")
_INDICES = ("int32", "int64")
_VECTOR_BITS = 128
_EVERYONE = 0xFFFFFFFF
_SIGN = 0x80000000
#: The key of what is not there: behind the last element, or taken out.
_NONE = 0
#: The key of what is no number, which counts as larger than all numbers; and those bits.
_NAN_KEYS = {True: 0xFFFFFFFF, False: 1}
_NAN = 0x7FFFFFFF
#: Places of a chunk that has less than k elements.
_NOWHERE = -1


def parts_of(columns: int) -> int:
    """Chunks that a row of so many elements is cut into."""
    return -(-columns // CHUNK)


@with_dtype_names
@named
def top_k(
    columns: int,
    k: int,
    rows: int | None = None,
    dtype: str = "float32",
    index_dtype: str = "int32",
    largest: bool = True,
    softmax: bool = False,
    placed: bool = False,
) -> PrimFunc:
    """A kernel for the ``k`` largest numbers of each row, in order, equal ones by their places.

    Parameters
    ----------
    columns : int
        Elements of a row.
    k : int
        At most 64, and at most ``columns``.
    rows : int, optional
        Without it the kernel takes any number.
    dtype, index_dtype : str
        Of X and Values: float32, float16 or bfloat16; of Indices: int32 or int64.
    largest : bool
        False finds the smallest.
    softmax : bool
        Whether the numbers are those of the softmax of a row of float32: at most 1024 columns.
    placed : bool
        Whether a parameter Places says which element of a longer row each is, or -1 for none.

    Returns
    -------
    PrimFunc
        ``top_k(X, [Places,] Values, Indices)``: X is ``(rows, columns)``, Places like it and of
        int32, the others are ``(rows, k)``. Of a row with more than 1024 columns, each of the
        ``parts_of(columns)`` chunks leaves k numbers: Values and Indices are ``(rows, parts * k)``
        then, to be searched with ``placed``. Where a chunk has fewer, places are -1. What is no
        number counts as larger than all numbers.

    Raises
    ------
    IllegalCombination
        If k, a dtype or the number of columns is none of these.

    Examples
    --------
    >>> routing = top_k(64, 6, softmax=True)
    """
    _check(columns, k, dtype, index_dtype, softmax)
    count: Any = T.Var("rows", "int32") if rows is None else rows
    warp = WarpOfRow(columns, k, dtype, largest, softmax)
    grid = T.truncdiv(count * warp.parts + (_WARPS - 1), _WARPS)
    shape, found = (count, columns), (count, warp.parts * k)

    @T.prim_func
    def of_all(x: T.handle, y: T.handle, i: T.handle):
        X = T.match_buffer(x, shape, dtype, align=16)
        Values = T.match_buffer(y, found, dtype)
        Indices = T.match_buffer(i, found, index_dtype)
        T.device_entry()
        cta = T.cta_id([grid])
        in_cta = T.warp_id([_WARPS])
        lane = T.lane_id([WARP])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        warp.search(X, None, Values, Indices, cta * _WARPS + in_cta, lane, count)

    @T.prim_func
    def of_chunks(x: T.handle, p: T.handle, y: T.handle, i: T.handle):
        X = T.match_buffer(x, shape, dtype, align=16)
        Places = T.match_buffer(p, shape, "int32", align=16)
        Values = T.match_buffer(y, found, dtype)
        Indices = T.match_buffer(i, found, index_dtype)
        T.device_entry()
        cta = T.cta_id([grid])
        in_cta = T.warp_id([_WARPS])
        lane = T.lane_id([WARP])
        T.ptx.griddepcontrol.launch_dependents()
        T.ptx.griddepcontrol.wait()
        warp.search(X, Places, Values, Indices, cta * _WARPS + in_cta, lane, count)

    return of_chunks if placed else of_all


@T.meta_class
class WarpOfRow:
    """A warp that searches a chunk of a row.

    Attributes
    ----------
    parts : int
        Chunks of a row.
    """

    def __init__(self, columns: int, k: int, dtype: str, largest: bool, softmax: bool) -> None:
        self.parts = parts_of(columns)
        self._columns, self._k, self._dtype = columns, k, dtype
        self._largest, self._softmax = largest, softmax
        chunk = -(-columns // self.parts)
        self._vector = _vector(columns, chunk, bits_of(dtype))
        self._chunk = -(-chunk // self._vector) * self._vector
        # Vectors of a lane, its elements, and the numbers that it stores.
        self._vectors = -(-self._chunk // (WARP * self._vector))
        self._mine = self._vectors * self._vector
        self._kept = -(-k // WARP)

    @T.inline
    def search(self, X, Places, Values, Indices, number, lane, rows):
        """The numbers of one chunk, by all lanes of the warp."""
        raw = T.alloc_buffer((self._mine,), self._dtype, scope="local")
        wide = T.alloc_buffer((self._mine,), "float32", scope="local")
        keys = T.alloc_buffer((self._mine,), "uint32", scope="local")
        found = T.alloc_buffer((self._kept,), "uint32", scope="local")
        where = T.alloc_buffer((self._kept,), "uint32", scope="local")
        top = T.alloc_buffer((1,), "uint32", scope="local")
        place = T.alloc_buffer((1,), "uint32", scope="local")
        row: T.let = T.truncdiv(number, self.parts)
        part: T.let = T.truncmod(number, self.parts)
        first: T.let = part * self._chunk
        end: T.let = T.min(first + self._chunk, self._columns)
        if row < rows:
            for v in T.unroll(self._vectors):
                at: T.let = first + (v * WARP + lane) * self._vector
                if at < end:
                    for i in T.vectorized(self._vector):
                        raw[v * self._vector + i] = X[row, at + i]
                for i in T.unroll(self._vector):
                    wide[v * self._vector + i] = T.float32("-inf")
                    if at < end:
                        wide[v * self._vector + i] = T.cast(raw[v * self._vector + i], "float32")
            if self._softmax:
                self._weigh(wide)
            for e in T.unroll(self._mine):
                at: T.let = first + self._column(e, lane)
                keys[e] = T.uint32(_NONE)
                if at < end:
                    keys[e] = self._key(wide[e])
                    if Places is not None:  # noqa: SIM102 (known here; the other on the device)
                        if Places[row, at] < 0:
                            keys[e] = T.uint32(_NONE)
            for n in T.serial(self._k):
                best: T.uint32 = keys[0]
                mine: T.int32 = 0
                for e in T.unroll(self._mine):
                    if keys[e] > best:
                        best = keys[e]
                        mine = e
                column: T.let = first + self._column(mine, lane)
                T.ptx.redux_sync.max.u32(top[0], best, T.uint32(_EVERYONE))
                T.ptx.redux_sync.min.u32(
                    place[0],
                    T.Select(best == top[0], T.cast(column, "uint32"), T.uint32(_EVERYONE)),
                    T.uint32(_EVERYONE),
                )
                if T.cast(column, "uint32") == place[0]:
                    for e in T.unroll(self._mine):
                        if e == mine:
                            keys[e] = T.uint32(_NONE)
                for e in T.unroll(self._kept):
                    if n == e * WARP + lane:
                        found[e] = top[0]
                        where[e] = place[0]
            for e in T.unroll(self._kept):
                n: T.let = e * WARP + lane
                if n < self._k:
                    Values[row, part * self._k + n] = T.cast(self._number(found[e]), self._dtype)
                    source: T.int32 = T.cast(where[e], "int32")
                    if found[e] == T.uint32(_NONE):
                        source = _NOWHERE
                    elif Places is not None:
                        source = Places[row, T.cast(where[e], "int32")]
                    Indices[row, part * self._k + n] = T.cast(source, Indices.dtype)

    @T.inline
    def _weigh(self, wide):
        """The softmax of a row; what is not there has -inf."""
        most: T.float32 = wide[0]
        for e in T.unroll(self._mine):
            most = T.max(most, wide[e])
        for step in T.unroll(5):
            most = T.max(most, self._other(most, 16 >> step))
        total: T.float32 = T.float32(0)
        for e in T.unroll(self._mine):
            wide[e] = T.exp(wide[e] - most)
            total = total + wide[e]
        for step in T.unroll(5):
            total = total + self._other(total, 16 >> step)
        for e in T.unroll(self._mine):
            wide[e] = wide[e] / total

    @staticmethod
    def _other(value: Any, distance: Any) -> Any:
        """What another lane has."""
        return T.tvm_warp_shuffle_xor(T.uint32(_EVERYONE), value, distance, WARP, WARP)

    def _column(self, element: Any, lane: Any) -> Any:
        """Which element of the chunk an element of a lane is."""
        vector = T.truncdiv(element, self._vector)
        return (vector * WARP + lane) * self._vector + T.truncmod(element, self._vector)

    def _key(self, value: Any) -> Any:
        """An integer that is larger where a number is, and larger than that of nothing."""
        bits = T.reinterpret("uint32", value)
        sign = T.uint32(_SIGN)
        ordered = T.Select(bits >= sign, ~bits, bits | sign)
        ordered = T.Select(bits == sign, sign, ordered)  # -0 is 0
        if not self._largest:
            ordered = ~ordered
        # Comparisons of floats would be true of no NaN, or be left out by fast mathematics.
        nan = (bits & T.uint32(_NAN)) > T.uint32(0x7F800000)
        return T.Select(nan, T.uint32(_NAN_KEYS[self._largest]), ordered)

    def _number(self, key: Any) -> Any:
        """The number that a key stands for; -inf for that of nothing, or inf."""
        nan = key == T.uint32(_NAN_KEYS[self._largest])
        nothing = key == T.uint32(_NONE)
        ordered = key if self._largest else ~key
        sign = T.uint32(_SIGN)
        bits = T.Select(ordered >= sign, ordered ^ sign, ~ordered)
        worst = T.uint32(0xFF800000 if self._largest else 0x7F800000)
        bits = T.Select(nothing, worst, T.Select(nan, T.uint32(_NAN), bits))
        return T.reinterpret("float32", bits)


def _vector(columns: int, chunk: int, bits: int) -> int:
    """Elements that a lane loads at a time: all vectors of a row are aligned and whole."""
    vector = _VECTOR_BITS // bits
    # No more than give each lane something to load.
    while vector > 1 and (columns % vector or chunk < vector * WARP):
        vector //= 2
    return vector


def _check(columns: int, k: int, dtype: str, index_dtype: str, softmax: bool) -> None:
    for holds, sentence in (
        (columns >= 1, f"columns is {columns}; a row must have an element."),
        (1 <= k <= min(columns, MOST),
         f"k is {k}; it must be from 1 to {MOST}, and at most the columns, {columns}."),
        (dtype in DTYPES, f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}."),
        (index_dtype in _INDICES,
         f"index_dtype is {index_dtype!r}; it must be one of {', '.join(_INDICES)}."),
        (not softmax or (dtype == "float32" and columns <= CHUNK),
         f"softmax of {columns} {dtype}: it must be float32, and at most {CHUNK} columns."),
    ):  # fmt: skip
        if not holds:
            raise IllegalCombination(sentence)
