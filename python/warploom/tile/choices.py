"""What can be chosen for a kernel: one table, a row for each choice.

Everything else follows from the rows: the parameters of ``wl.hints`` and their documentation, the
fields of :class:`~warploom.decide.config.Config`, annotations of schedules, what MetaSchedule draws
from, options of the command line. A new choice is a row here, the pass that follows it, and tests.

What the problem or the GPU forbids is in :mod:`warploom.decide.rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from warploom.errors import IllegalCombination

#: Orders in which a grid of tiles is walked.
RASTERS = ("rows", "columns", "grouped")
#: Who gives tiles to the CTAs of a persistent grid.
SCHEDULERS = ("static", "clc", "snake", "counter")
#: Where CTAs that share a tile add their parts of the sum.
REDUCTIONS = ("workspace", "cluster")
#: CTAs of a cluster that every GPU can launch.
MAX_CLUSTER = 8
#: CTAs that can add their parts of a sum in a cluster.
REDUCING_CLUSTERS = (2, 4, 8)
#: Warpgroups that compute alternate tiles with ``ping_pong``.
PING_PONG_WARPGROUPS = 2
#: L2 eviction policies of PTX (``createpolicy``): of what is dropped first, and of what is kept.
DROPPED, KEPT = "evict_first", "evict_last"
#: What the L2 cache is told of A and B, by the choice ``l2_policy``: nothing, to drop B first, and
#: to drop A last as well.
POLICIES = ((None, None), (None, DROPPED), (KEPT, DROPPED))


class Kind(Protocol):
    """Values that a choice may have; annotations hold them as integers."""

    def why_not(self, value: Any) -> str | None:
        """What is wrong with a value, as the end of a sentence; None if it is allowed."""

    def number(self, value: Any) -> int:
        """An allowed value as an integer."""

    def value(self, number: int) -> Any:
        """The inverse of :meth:`number`; any integer may be given."""

    @property
    def all(self) -> tuple[Any, ...]:
        """Every value; empty where they are too many to list."""

    def __str__(self) -> str:
        """For people: ``bool``, ``1 to 3``, ``"rows" or "columns"``."""


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def why_not(self, value: Any) -> str | None:
        return None if isinstance(value, bool) else "it must be a bool"

    def number(self, value: Any) -> int:
        return int(value)

    def value(self, number: int) -> Any:
        return bool(number) if number in (0, 1) else number

    @property
    def all(self) -> tuple[Any, ...]:
        return (False, True)

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True)
class Count:
    """Integers from ``least`` to ``most``, multiples of ``step``."""

    least: int = 1
    most: int | None = None
    step: int = 1
    because: str = ""

    def why_not(self, value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or value < self.least:
            return f"it must be an integer of at least {self.least}"
        if self.most is not None and value > self.most:
            return f"it must be at most {self.most}{self.because}"
        return f"it must be a multiple of {self.step}" if value % self.step else None

    def number(self, value: Any) -> int:
        return int(value)

    def value(self, number: int) -> Any:
        return number

    @property
    def all(self) -> tuple[Any, ...]:
        return ()

    def __str__(self) -> str:
        multiple = f"multiple of {self.step}, " if self.step > 1 else ""
        most = "or more" if self.most is None else f"to {self.most}"
        return f"int, {multiple}{self.least} {most}"


@dataclass(frozen=True)
class Word:
    """One of several words; its integer is the word's place."""

    words: tuple[str, ...]

    def why_not(self, value: Any) -> str | None:
        allowed = ", ".join(map(repr, self.words))
        return None if value in self.words else f"it must be one of {allowed}"

    def number(self, value: Any) -> int:
        return self.words.index(value)

    def value(self, number: int) -> Any:
        return self.words[number] if 0 <= number < len(self.words) else number

    @property
    def all(self) -> tuple[Any, ...]:
        return self.words

    def __str__(self) -> str:
        return " or ".join(f'"{word}"' for word in self.words)


@dataclass(frozen=True)
class Choice:
    """A row of the table.

    Attributes
    ----------
    name : str
        Of the field of a config, and of the annotation.
    kind : Kind
        The values that it may have.
    sentence : str
        For people: what is chosen, and when to choose otherwise.
    default : object
        Of a config; None if configs do not have it, which leave it to passes.
    draws : tuple
        Values from which a search draws; empty where a search takes the default, or where the
        problem decides which values there are (tiles: :mod:`warploom.decide.candidates`).
    hint : str or None
        The parameter of ``wl.hints``; None if there is none. Two rows may be a pair.
    priced : bool
        Whether the model of costs knows the price.
    rule : str
        What candidates have, and the measurement that says so, where the model does not choose:
        it knows no price, or what is chosen gains less than the model errs between two tiles.
    """

    name: str
    kind: Kind
    sentence: str
    default: Any = None
    draws: tuple[Any, ...] = ()
    hint: str | None = None
    priced: bool = True
    rule: str = ""


def _hint(
    name: str, kind: Kind, sentence: str, *default: Any, pair: str = "", **more: Any
) -> Choice:
    return Choice(name, kind, sentence, *default, hint=pair or name, **more)


_REGISTERS = Count(24, 256, 8)
_WARPGROUPS = Count(1, 3, because=", as a CTA has room for 1 to 3 computing warpgroups")

#: All choices; those with a default are the fields of a config, in this order.
CHOICES = (
    Choice("tile_m", Count(), "Rows of the result that a CTA computes at a time.", 128),
    Choice("tile_n", Count(), "Columns of the result that a CTA computes at a time.", 256),
    Choice("tile_k", Count(), "K of one stage.", 64),
    _hint("stages", Count(),
        "Steps of K that are loaded ahead: the stages of every pipelined loop that does not say "
        "itself. Without the hint as many as hide the latency of loads, and shared memory holds.",
        4, (12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2),
    ),
    _hint("consumers", _WARPGROUPS, "Warpgroups that compute, each an equal share of the rows.",
          2, (1, 2, 3)),
    Choice(
        "swap_ab", Flag(),
        "Computes the transpose, so that columns are the side of 64-row instructions: for few "
        "rows.",
        False, (False, True),
    ),
    Choice(
        "gemv", Flag(),
        "Whether warps load weights from global memory straight into registers and multiply up to "
        "8 rows with mma.sync: for weights of 4 and 8 bits. What other choices then mean is in "
        "warploom.decide.gemv_rules.",
        False,
    ),
    _hint("ping_pong", Flag(),
        "Whether two warpgroups compute alternate tiles of a persistent CTA, each all rows of its "
        "own: the epilogue of one hides behind the MMAs of the other. For tiles of one consumer.",
        False, (False, True),
    ),
    _hint("ctas_per_sm", Count(),
        "CTAs that an SM holds at a time. Each gets its part of the registers and of the shared "
        "memory, and a persistent grid has as many for each SM.",
        1, (1, 2, 3),
    ),
    _hint("slice_k", _WARPGROUPS,
        "Warpgroups that share the steps of the pipelined loop: each computes all rows of every "
        "n-th step, and their sums are added (slice-K). For tiles of few rows.",
        1, (1, 2, 3),
    ),
    _hint("persistent", Flag(),
        "Whether each CTA computes tile after tile; if not, the grid has a CTA for each tile.",
        True, (True, False),
    ),
    _hint("specialise", Flag(),
        "Whether warps of their own load; if not, the warps that compute load ahead of themselves.",
        True, (True, False),
    ),
    _hint("stream_k", Flag(),
        "Whether CTAs share the tiles that would not keep all of them busy, cut wherever equal "
        "parts of the work end.",
        False, (False, True),
    ),
    _hint("split_k", Count(),
        "CTAs that share each tile: each computes a part of its loop over K.",
        1, (1, 2, 3, 4, 6, 8, 12, 16),
    ),
    _hint("reduce_through", Word(REDUCTIONS),
        "Where the CTAs of split_k add their parts of the sum: in a workspace in global memory, or "
        "in the shared memory of the cluster that they then are.",
        "workspace", REDUCTIONS,
    ),
    _hint("cluster_m", Count(),
        "CTAs of a cluster along rows, the first dimension of the grid; they share tiles of B. On "
        "Blackwell, two of them multiply as a pair where the MMAs allow it.",
        1, (1, 2, 4, 8), pair="cluster",
    ),
    _hint("cluster_n", Count(),
        "CTAs of a cluster along columns, the second dimension of the grid; they share tiles of A.",
        1, (1, 2, 4, 8), pair="cluster",
    ),
    _hint("raster", Word(RASTERS), "The order in which tiles are computed.", "grouped"),
    _hint("group", Count(),
        "Rows of clusters that the raster \"grouped\" visits together, so that their operands stay "
        "in the L2 cache.",
        8, (1, 2, 4, 8, 16, 32),
    ),
    _hint("store_columns", Count(),
        "Columns, at most, of the chunks in which TMA stores tiles of registers. Fewer need less "
        "shared memory.",
        64, (64, 32, 16),
    ),
    _hint("store_buffers", Count(),
        "Chunks of the widest kind that each warpgroup has buffers for. With as many as its tile "
        "has, it waits for none of them, but for those of the tile before: so it is without the "
        "hint where a loop stores tiles of up to 32 KiB.",
        2, (2, 1, 4), priced=False,
        rule="Two: TMA reads one while the next is written, and neither waits. Of random GEMMs one "
        "took 1.001 and four took 1.000 of the time (medians of 33 and 18 configs).",
    ),
    Choice(
        "sms", Count(0),
        "SMs that compute; 0 for all. Where fewer need as many waves, power and the L2 cache are "
        "left to these.",
        0, (0, 128),
        rule="All. Of random GEMMs 128 took 1.003 of the time (median of 215 configs).",
    ),
    _hint("pdl", Flag(),
        "Whether the kernel may start before the kernel before it in its stream ends, for the end "
        "of which it then waits itself (programmatic dependent launch).",
        True, (True, False),
        rule="On: it saves 0.6 us of a launch. Off for grouped GEMMs, of which 8 groups took 4 to "
        "18 % longer in a row with it.",
    ),
    Choice(
        "l2_policy", Count(0, len(POLICIES) - 1),
        "The L2 eviction policy: 0 for none, 1 for B evict_first, 2 for A evict_last as well.",
        0, tuple(range(len(POLICIES))),
        rule="1 for weights that are read once, of up to 128 rows: 2 to 14 % less. And 1 without a "
        "cluster where the L2 cache does not hold both operands. Results push out what is dropped "
        "first: where they are much larger than the operands, 1 took up to 14 % longer.",
    ),
    _hint("prefetch_l2", Flag(),
        "Whether a kernel that starts early brings what its first steps load into the L2 cache "
        "before it waits. For GEMMs whose time is that of loading weights.",
        False, (False, True),
        rule="On for 16-bit weights that are read once, of up to 128 rows: there it gained up to "
        "14 %. What the L2 cache does not drop first is left out then: CTAs that prefetch the same "
        "bytes took up to 18 % longer.",
    ),
    _hint("ctas", Count(),
        "CTAs of a persistent grid; without it as many as the device holds, which the host asks at "
        "each launch."),
    _hint("scheduler", Word(SCHEDULERS),
        "The CTAs of a persistent grid compute every n-th tile (static), or each takes over tiles "
        "of CTAs that have not started (clc: cluster launch control, on Blackwell), or each draws "
        "the next one from a counter in memory (counter): for tiles that differ in their work. "
        "With snake every other round goes from the last CTA to the first: where tiles come sorted "
        "by their work, CTAs then get equal shares of it."),
    _hint("order_mmas", Flag(),
        "Whether computing warpgroups issue their MMAs in order: while those of one run, the "
        "others compute with their results. For loops that use results in the step that has them.",
        False,
        rule="Off for GEMMs, whose MMAs run on from step to step. For block scales the model "
        "chooses: tiles of 256 x 128 took 0.92 to 1.04 of the time with it, others 0.97 to 1.05 "
        "(30 configs). On for attention with heads of up to 128 elements, 64 under a causal mask: "
        "0.84 to 1.01 of the time (13 configs).",
    ),
    _hint("split_rings", Flag(),
        "Whether loads of a loop that different statements use travel through rings of their own: "
        "a stage is then free when its own user has read it, not when all have. A tile may then be "
        "loaded in several places, such as before a loop and in it. On Hopper."),
    Choice(
        "scales_ahead", Flag(),
        "Whether the scales of blocks are loaded a step before their operands.", False,
    ),
    _hint("set_registers", Flag(),
        "Whether warps of different roles may get different numbers of registers; if not, all keep "
        "those that they start with."),
    _hint("producer_registers", _REGISTERS,
        "Registers of a thread of the loading warps; None leaves them to the passes.",
        pair="registers"),
    _hint("consumer_registers", _REGISTERS,
        "Registers of a thread of the computing warps; None leaves them to the passes.",
        pair="registers"),
)  # fmt: skip

#: The choices that a config makes; all others are left to passes.
ROWS = tuple(row for row in CHOICES if row.default is not None)
#: The rows by name.
BY_NAME: Mapping[str, Choice] = {row.name: row for row in CHOICES}


@dataclass(frozen=True)
class Exclusion:
    """A choice with one of these values needs others to have certain values.

    Attributes
    ----------
    name : str
    values : tuple
        Empty for any value that somebody has chosen.
    allowed : mapping from str to tuple
        What each of the other choices may be. A choice that nobody has made (None) may be anything,
        but where ``said`` holds.
    because : str
        The reason, as a clause.
    said : bool
        Whether the others must have been chosen.
    """

    name: str
    values: tuple[Any, ...]
    allowed: Mapping[str, tuple[Any, ...]]
    because: str
    said: bool = False

    def why_not(self, chosen: Mapping[str, Any]) -> str | None:
        """The sentence that explains a violation by choices, by name; None if there is none."""
        value = chosen.get(self.name)
        if value is None or (self.values and value not in self.values):
            return None
        for name, allowed in self.allowed.items():
            other = chosen.get(name)
            if other in allowed or (other is None and not self.said):
                continue
            words = " or ".join(map(repr, allowed))
            leave = "" if self.said else " or left out"
            return (
                f"{self.name} {value!r} with {name} {other!r}: {self.because}; {name} may be "
                f"{words}{leave}."
            )
        return None


#: What excludes each other in every program.
EXCLUSIONS = (
    Exclusion(
        "ping_pong", (True,),
        {"consumers": (1,), "slice_k": (1,), "split_k": (1,), "stream_k": (False,),
         "persistent": (True,)},
        "each of two warpgroups computes whole tiles of a persistent CTA",
    ),
    Exclusion(
        "reduce_through", ("cluster",), {"split_k": REDUCING_CLUSTERS},
        "the CTAs of a tile are a cluster, so split_k must be a power of two up to 8", said=True,
    ),
    Exclusion(
        "reduce_through", ("cluster",), {"cluster_m": (1,), "cluster_n": (1,)},
        "the CTAs of a tile are a cluster already",
    ),
    Exclusion(
        "stream_k", (True,), {"split_k": (1,)}, "both say how CTAs share tiles; choose one of them"
    ),
    Exclusion("scheduler", (), {"persistent": (True,)}, "it gives tiles to a persistent grid"),
    Exclusion(
        "group", (), {"raster": ("grouped",)}, "groups are those of the raster 'grouped'", said=True
    ),
    Exclusion(
        "prefetch_l2", (True,), {"pdl": (True,)},
        "a kernel that starts when the kernel before has ended has no time for it",
    ),
    *(Exclusion(
        name, (), {"set_registers": (True,)}, "without it all warps keep those they start with"
    ) for name in ("producer_registers", "consumer_registers")),
)  # fmt: skip


def faults(chosen: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about what cannot be chosen, whatever the program is.

    Parameters
    ----------
    chosen : mapping from str
        Values by the names of choices; None, or no value, for a choice that nobody has made.
    """
    for name, value in chosen.items():
        if value is not None and (reason := BY_NAME[name].kind.why_not(value)) is not None:
            yield f"{name} is {value!r}; {reason}."
    cluster = [chosen.get(name) or 1 for name in ("cluster_m", "cluster_n")]
    if cluster[0] * cluster[1] > MAX_CLUSTER:
        yield (
            f"cluster ({cluster[0]}, {cluster[1]}) has {cluster[0] * cluster[1]} CTAs; at most "
            f"{MAX_CLUSTER} are allowed."
        )
    for exclusion in EXCLUSIONS:
        if (reason := exclusion.why_not(chosen)) is not None:
            yield reason


def require_positive(name: str, value: Any) -> int:
    """``value`` as an int, if it is an integer of at least 1."""
    if (reason := Count().why_not(value)) is not None:
        raise IllegalCombination(f"{name} is {value!r}; {reason}.")
    return value
