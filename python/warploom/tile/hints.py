"""``wl.hints``: what the author of a tile program wants the passes to choose.

A hint has no meaning for the result. Hints are attributes ``warploom.<name>`` around the body of
the device function; :func:`~warploom.tile.hint_attributes.read_hints` gives them back as a
:class:`Hints`. TVM prints attributes of several values in a form that it cannot parse, so
``cluster`` and ``registers`` are two attributes each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from tvm.ir import StringImm
from tvm.script import tirx as T

from warploom.errors import IllegalCombination

PREFIX = "warploom."
DEVICE_ENTRY = "tirx.device_entry"

#: Orders in which a grid of tiles is walked.
RASTERS = ("rows", "columns", "grouped")
#: Who gives tiles to the CTAs of a persistent grid.
SCHEDULERS = ("static", "clc")
#: Where CTAs that share a tile leave their sums.
EXCHANGES = ("workspace", "cluster")
#: Warpgroups that compute alternate tiles with ``ping_pong``.
PING_PONG_WARPGROUPS = 2
#: CTAs of a cluster that every GPU can launch.
MAX_CLUSTER = 8
#: What ``setmaxnreg`` takes: multiples of 8 in this range.
REGISTER_RANGE = (24, 256)
#: Attributes of the two hints of registers, for statements that set one of them alone.
PRODUCER_REGISTERS, CONSUMER_REGISTERS = (f"{PREFIX}registers_{role}" for role in range(2))
SET_REGISTERS = PREFIX + "set_registers"


#: Hints that are bools, that are counts from 1 on, and that are one of several words.
_FLAGS = (
    "persistent", "specialise", "stream_k", "set_registers", "ping_pong", "order_mmas",
    "early_launch", "prefetch_l2",
)  # fmt: skip
_COUNTS = (
    "group", "consumers", "stages", "ctas", "ctas_per_sm", "turns", "split_k", "store_columns",
    "store_buffers",
)  # fmt: skip
_WORDS = {"raster": RASTERS, "scheduler": SCHEDULERS, "exchange": EXCHANGES}


@dataclass(frozen=True)
class Hints:
    """The hints of a tile program; None where there is none.

    Attributes
    ----------
    cluster : (int, int)
        CTAs of a cluster along the first and the second dimension of ``T.cta_id``. On Blackwell,
        (2, n) makes pairs of CTAs that multiply together, where the products allow it.
    persistent : bool
        Whether each CTA works on tile after tile (True), or the grid has a CTA for each (False).
    raster : str
        One of :data:`RASTERS`: the order in which tiles are worked on.
    group : int
        Rows of tiles of one group of the raster ``"grouped"``.
    consumers : int
        Warpgroups that compute, 1 to 3.
    registers : (int, int)
        Registers of a thread of the loading warps, and of the computing ones; None for one of
        them leaves it to the passes.
    set_registers : bool
        Whether warps of different roles may get different numbers of registers (True), or all
        keep those that they start with (False).
    stages : int
        Stages of every pipelined loop that does not say itself.
    specialise : bool
        Whether warps of their own load (True), or those that compute load ahead of themselves
        (False).
    ctas : int
        CTAs of a persistent grid; without it as many as the device holds, which the host asks at
        each launch.
    ctas_per_sm : int
        CTAs that an SM holds at a time. Each gets its part of the registers and of the shared
        memory, and a persistent grid has so many for each SM.
    scheduler : str
        One of :data:`SCHEDULERS`: the CTAs of a persistent grid compute every n-th tile, or each
        takes over tiles of CTAs that have not started (cluster launch control, on Blackwell).
    turns : int
        Warpgroups, 1 to 3, that take turns with the steps of the pipelined loop: each computes
        all rows of every so many-th step, and their sums are added. For tiles of few rows.
    split_k : int
        CTAs that share each tile: each computes a part of its loop over K.
    exchange : str
        One of :data:`EXCHANGES`: where CTAs of ``split_k`` leave their sums for each other, in
        global memory or in the shared memory of a cluster, which those of a tile then are.
    stream_k : bool
        Whether CTAs share the tiles that would not keep all of them busy (True), cut wherever
        equal parts of the work end.
    store_columns : int
        Columns, at most, of the chunks in which TMA stores tiles of registers; without it as many
        as a swizzled row of shared memory holds. Fewer need less shared memory.
    store_buffers : int
        Chunks of the widest kind that each warpgroup has buffers for. With as many as its tile
        has, it waits for none of them, but for those of the tile before.
    ping_pong : bool
        Whether two warpgroups compute alternate tiles of a persistent CTA (True), each all rows of
        its own: one's results hide behind the other's products. For tiles of one consumer.
    order_mmas : bool
        Whether computing warpgroups issue their products in turn (True): while those of one run,
        the others compute with their results. For loops that use results in the step that has
        them.
    early_launch : bool
        Whether the kernel may be launched while the one before it in its stream still runs, for
        the end of which it then waits itself (True, and without the hint).
    prefetch_l2 : bool
        Whether a kernel that is launched early brings what its first steps load into the L2 cache
        before it waits (True). For products whose time is that of loading weights.
    """

    cluster: tuple[int, int] | None = None
    persistent: bool | None = None
    raster: str | None = None
    group: int | None = None
    consumers: int | None = None
    registers: tuple[int | None, int | None] | None = None
    stages: int | None = None
    specialise: bool | None = None
    ctas: int | None = None
    ctas_per_sm: int | None = None
    scheduler: str | None = None
    turns: int | None = None
    split_k: int | None = None
    stream_k: bool | None = None
    exchange: str | None = None
    set_registers: bool | None = None
    store_columns: int | None = None
    store_buffers: int | None = None
    ping_pong: bool | None = None
    order_mmas: bool | None = None
    early_launch: bool | None = None
    prefetch_l2: bool | None = None

    def __post_init__(self) -> None:
        self._check_kinds()
        self._check_grid()
        self._check_warpgroups()
        self._check_sharing()
        self._check_launch()

    def _check_kinds(self) -> None:
        """Flags are bools, counts positive, words of their lists; clusters and registers pairs."""
        for name in _FLAGS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise IllegalCombination(f"{name} is {value!r}; it must be a bool.")
        for name, allowed in _WORDS.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                words = ", ".join(map(repr, allowed))
                raise IllegalCombination(f"{name} is {value!r}; it must be one of {words}.")
        for name in _COUNTS:
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name))
        if self.cluster is not None:
            _check_pair("cluster", self.cluster)
        if self.registers is not None:
            _check_pair("registers", self.registers, optional=True)

    def _check_grid(self) -> None:
        if self.cluster is not None and self.cluster[0] * self.cluster[1] > MAX_CLUSTER:
            raise IllegalCombination(
                f"cluster {self.cluster} has {self.cluster[0] * self.cluster[1]} CTAs; at most "
                f"{MAX_CLUSTER} are allowed."
            )
        if self.scheduler is not None and self.persistent is False:
            raise IllegalCombination("scheduler needs a persistent grid, and persistent is False.")
        if self.group is not None and self.raster != "grouped":
            raise IllegalCombination(f"group {self.group} needs raster='grouped'.")

    def _check_warpgroups(self) -> None:
        for name in ("consumers", "turns"):
            if (getattr(self, name) or 0) > 3:
                raise IllegalCombination(
                    f"{name} is {getattr(self, name)}; a CTA has room for 1 to 3 computing "
                    "warpgroups."
                )
        if self.ping_pong:
            self._check_ping_pong()
        if self.registers is not None:
            self._check_registers()

    def _check_sharing(self) -> None:
        if self.exchange == "cluster":
            self._check_exchange()
        if self.split_k is not None and self.stream_k:
            raise IllegalCombination(
                f"split_k {self.split_k} with stream_k: both say how CTAs share tiles; choose one."
            )

    def _check_launch(self) -> None:
        if self.prefetch_l2 and self.early_launch is False:
            raise IllegalCombination(
                "prefetch_l2 with early_launch False: a kernel that starts when the one before has "
                "ended has no time to warm the cache; leave one of them out."
            )

    def _check_registers(self) -> None:
        low, high = REGISTER_RANGE
        given = [count for count in self.registers if count is not None]
        if not given or any(r % 8 or not low <= r <= high for r in given):
            raise IllegalCombination(
                f"registers {self.registers} must be multiples of 8 from {low} to {high}."
            )
        if self.set_registers is False:
            raise IllegalCombination(
                f"registers {self.registers} with set_registers False, with which warps keep "
                "those they start with; leave one of them out."
            )

    def _check_exchange(self) -> None:
        if self.split_k is None or self.split_k > MAX_CLUSTER or self.split_k & (self.split_k - 1):
            raise IllegalCombination(
                f"exchange='cluster' with split_k {self.split_k}: the CTAs of a tile are a "
                f"cluster, so split_k must be a power of two up to {MAX_CLUSTER}."
            )
        if self.cluster not in (None, (1, 1)):
            raise IllegalCombination(
                f"exchange='cluster' with cluster {self.cluster}: the CTAs of a tile are a cluster "
                "already; leave one of them out."
            )

    def _check_ping_pong(self) -> None:
        requirements = {"consumers": (None, 1), "turns": (None, 1), "split_k": (None, 1),
                  "stream_k": (None, False), "persistent": (None, True)}  # fmt: skip
        for name, allowed in requirements.items():
            if (value := getattr(self, name)) not in allowed:
                raise IllegalCombination(
                    f"ping_pong with {name} {value!r}: each of two warpgroups computes whole tiles "
                    f"of a persistent CTA; {name} may be {allowed[1]!r} or left out."
                )

    def attributes(self) -> dict[str, Any]:
        """The hints that are set, as values for ``T.attr``."""
        table: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                keys = (pair_key(field.name, i) for i in range(2))
                table |= {k: v for k, v in zip(keys, value, strict=True) if v is not None}
            elif value is not None:
                key = PREFIX + field.name
                table[key] = StringImm(value) if isinstance(value, str) else value
        return table


def _check_pair(name: str, value: Any, optional: bool = False) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        raise IllegalCombination(f"{name} is {value!r}; it must be a pair of integers.")
    for index in range(2):
        if value[index] is not None or not optional:
            require_positive(f"{name}[{index}]", value[index])


def pair_key(name: str, index: int) -> str:
    """The attribute of an element of a hint that is a pair."""
    return f"{PREFIX}{name}_{index}"


#: Keys of the attributes that are hints.
HINT_KEYS = frozenset(PREFIX + field.name for field in fields(Hints)) | frozenset(
    pair_key(name, index) for name in ("cluster", "registers") for index in range(2)
)


def hints(
    *,
    cluster: Sequence[int] | None = None,
    persistent: bool | None = None,
    raster: str | None = None,
    group: int | None = None,
    consumers: int | None = None,
    registers: Sequence[int | None] | None = None,
    stages: int | None = None,
    specialise: bool | None = None,
    ctas: int | None = None,
    ctas_per_sm: int | None = None,
    scheduler: str | None = None,
    turns: int | None = None,
    split_k: int | None = None,
    stream_k: bool | None = None,
    exchange: str | None = None,
    set_registers: bool | None = None,
    store_columns: int | None = None,
    store_buffers: int | None = None,
    ping_pong: bool | None = None,
    order_mmas: bool | None = None,
    early_launch: bool | None = None,
    prefetch_l2: bool | None = None,
) -> Any:
    """Hints of the author, as a statement directly after ``T.device_entry()``.

    The parameters are the attributes of :class:`Hints`; all are optional, and the passes choose
    what is left out.

    Raises
    ------
    IllegalCombination
        If a value is out of its range, or there is no hint at all.

    Examples
    --------
    ``wl.hints(cluster=(2, 1), persistent=True, raster="grouped", group=8)``
    """
    pairs = [tuple(v) if isinstance(v, Sequence) else v for v in (cluster, registers)]
    wanted = Hints(
        pairs[0], persistent, raster, group, consumers, pairs[1], stages, specialise, ctas,
        ctas_per_sm, scheduler, turns, split_k, stream_k, exchange, set_registers, store_columns,
        store_buffers, ping_pong, order_mmas, early_launch, prefetch_l2,
    )  # fmt: skip
    attributes = wanted.attributes()
    if not attributes:
        names = ", ".join(field.name for field in fields(Hints))
        raise IllegalCombination(f"hints() got no hint; it takes at least one of {names}.")
    return T.attr(attributes)


def require_positive(name: str, value: Any) -> int:
    """``value`` as an int, if it is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise IllegalCombination(f"{name} is {value!r}; it must be an integer of at least 1.")
    return value
