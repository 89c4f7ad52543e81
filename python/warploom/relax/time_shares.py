"""Where the time of a model goes, by kernel: modelled, nothing is compiled or measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm.target import Target

from warploom.decide.machines import machine_for
from warploom.errors import Decline, IllegalCombination
from warploom.meta_schedule.lookup import Lookup
from warploom.relax import launch_cost
from warploom.relax.inspect import FunctionReport, Inspected, inspected
from warploom.relax.kv_cache import cache_kernels
from warploom.relax.launch_cost import Cost
from warploom.relax.launches import DEFAULT_SIZE, FunctionLaunches, Launch, launches
from warploom.relax.signatures import Facts
from warploom.target.tvm_target import cuda_target

#: Who computes a kernel, as reports name it: tensor-core kernels and other kernels of this package,
#: and what is left to TVM.
WGMMA, ROWS, TVM = "wgmma", "rows", "TVM"
KINDS = (WGMMA, ROWS, TVM)


@dataclass(frozen=True)
class KernelShare:
    """All launches of one kernel in one call of a Relax function.

    Attributes
    ----------
    name : str
        Of the function in the model.
    kind : str
        One of :data:`KINDS`.
    calls : int
    time : float
        Microseconds of all launches, modelled.
    flops : float
        Of matmuls, convolutions and attention.
    bytes : float
        Of memory, each element once.
    at_least : bool
        Whether the time is a lower bound.
    words : str
        What it computes, and how.
    reason : str
        Why it is left to TVM; empty for kernels of this package.
    """

    name: str
    kind: str
    calls: int
    time: float
    flops: float
    bytes: float
    at_least: bool
    words: str
    reason: str = ""


@dataclass(frozen=True)
class FunctionShares:
    """One Relax function: its kernels, those with the largest share of time first.

    Attributes
    ----------
    name : str
    sizes : dict of str to int
        What its symbolic sizes count as; ``context`` is the keys of a KV cache.
    kernels : tuple of KernelShare
    uncounted : dict of str to int
        Calls of functions that nothing is known of, such as those of libraries.
    """

    name: str
    sizes: dict[str, int]
    kernels: tuple[KernelShare, ...]
    uncounted: dict[str, int]

    def total(self, quantity: str, kind: str | None = None) -> float:
        """The sum of ``"time"``, ``"flops"``, ``"bytes"`` or ``"calls"``, of one kind or of all."""
        return sum(
            getattr(one, quantity) for one in self.kernels if kind is None or one.kind == kind
        )

    def share(self, quantity: str, of: KernelShare | str) -> float:
        """The part of a quantity that a kernel, or a kind of kernels, has: 0 to 1."""
        whole = self.total(quantity)
        part = self.total(quantity, of) if isinstance(of, str) else getattr(of, quantity)
        return part / whole if whole else 0.0

    def as_json(self) -> dict[str, Any]:
        """Numbers and names, for other programs; times are microseconds."""
        kinds = {
            kind: {q: self.share(q, kind) for q in ("time", "flops", "bytes")} for kind in KINDS
        }
        kernels = [
            {
                "name": one.name, "kind": one.kind, "calls": one.calls, "time_us": one.time,
                "at_least": one.at_least, "flops": one.flops, "bytes": one.bytes,
                "share": {q: self.share(q, one) for q in ("time", "flops", "bytes")},
                "words": one.words, "reason": one.reason,
            }
            for one in self.kernels
        ]  # fmt: skip
        return {
            "name": self.name, "sizes": self.sizes, "time_us": self.total("time"),
            "flops": self.total("flops"), "bytes": self.total("bytes"), "shares": kinds,
            "kernels": kernels, "uncounted": self.uncounted,
        }  # fmt: skip


def time_shares(
    mod: tvm.IRModule,
    sizes: Mapping[str, int] | None = None,
    context: int = DEFAULT_SIZE,
    tf32: bool = False,
    lookup: Lookup | None = None,
    target: Target | None = None,
) -> list[FunctionShares]:
    """Modelled shares of time, FLOPs and bytes, for each Relax function that no other one calls.

    The function that takes longest comes first. Functions are independent entries of a model, such
    as prefill and decode: nothing is added between them.

    Parameters
    ----------
    mod : IRModule
        A model before any pass, as ``nn.Module.export_tvm`` returns it.
    sizes : mapping of str to int, optional
        What symbolic sizes count as, by name; others count as 4096.
    context : int
        Keys of a sequence in a KV cache, where a function decodes.
    tf32 : bool
        As for :func:`warploom.relax.inspect.inspect`.
    lookup : Lookup, optional
        As for :func:`warploom.relax.inspect.inspect`.
    target : Target, optional
        The GPU that is modelled; an H200 by default.

    Examples
    --------
    >>> from tvm.relax.frontend import nn
    >>> layer = nn.Linear(64, 128)
    >>> layer.to("float16")
    >>> mod, _ = layer.export_tvm({"forward": {"x": nn.spec.Tensor(["rows", 64], "float16")}})
    >>> (forward,) = time_shares(mod, {"rows": 256})
    >>> [(kernel.kind, kernel.calls, kernel.flops) for kernel in forward.kernels]
    [('wgmma', 1, 4194304)]
    """
    target = target or cuda_target("h200")
    return shares_of(inspected(mod, tf32, lookup, target), sizes, context)


def shares_of(
    seen: Inspected, sizes: Mapping[str, int] | None = None, context: int = DEFAULT_SIZE
) -> list[FunctionShares]:
    """As :func:`time_shares`, of a model that has been inspected."""
    pricer = _Pricer(seen, context)
    found = [pricer.shares(one) for one in launches(seen.mod, seen.original, sizes)]
    found = [one for one in found if one.kernels or one.uncounted]
    return sorted(found, key=lambda one: (-one.total("time"), one.name))


class _Pricer:
    """Prices launches, each once."""

    def __init__(self, seen: Inspected, context: int) -> None:
        self.seen, self.context = seen, context
        self.machine = machine_for(seen.target)
        self.reports = {report.name: report for report in seen.reports}
        self.functions = {gv.name_hint: func for gv, func in seen.mod.functions.items()}
        original = {gv.name_hint: func for gv, func in seen.original.functions.items()}
        self.cache = {
            use.variable.name_hint: (use, original[use.variable.name_hint])
            for use in cache_kernels(seen.original)
        }
        self.known: dict[Launch, Cost] = {}

    def shares(self, found: FunctionLaunches) -> FunctionShares:
        """The shares of the kernels of one Relax function."""
        costs: dict[str, list[tuple[int, Launch, Cost]]] = {}
        for launch, count in found.launches.items():
            if not self.reports[launch.kernel].reshapes:
                costs.setdefault(launch.kernel, []).append((count, launch, self._cost(launch)))
        kernels = [self._kernel(name, parts) for name, parts in costs.items()]
        kernels.sort(key=lambda one: (-one.time, one.name))
        sizes = dict(sorted(found.sizes.items()))
        if any(launch.decodes for launch in found.launches):
            sizes["context"] = self.context
        return FunctionShares(found.name, sizes, tuple(kernels), dict(found.others))

    def _kernel(self, name: str, parts: list[tuple[int, Launch, Cost]]) -> KernelShare:
        report = self.reports[name]
        sums: Counter[str] = Counter()
        for count, _, cost in parts:
            for quantity in ("time", "flops", "bytes"):
                sums[quantity] += count * getattr(cost, quantity)
        return KernelShare(
            name,
            kind_of(report),
            sum(count for count, *_ in parts),
            sums["time"],
            sums["flops"],
            sums["bytes"],
            any(cost.at_least for *_, cost in parts),
            " and ".join(dict.fromkeys(cost.words for *_, cost in parts)) or _words(report),
            report.reason,
        )

    def _cost(self, launch: Launch) -> Cost:
        if launch not in self.known:
            self.known[launch] = self._priced(launch)
        return self.known[launch]

    def _priced(self, launch: Launch) -> Cost:
        func, report, machine = (
            self.functions[launch.kernel], self.reports[launch.kernel], self.machine
        )  # fmt: skip
        if launch.rows:
            return self._priced_cached(launch)
        kind = kind_of(report)
        bound = launch_cost.bound_sizes(func, launch.shapes, launch.scalars)
        sizes = {var.name: size for var, size in bound.items()}
        if report.attention or report.program or not (func.attrs or {}).get("s_tir", False):
            cost = launch_cost.program_cost(func, sizes, machine)
            return cost if kind != TVM else replace(cost, at_least=True)
        if report.problem is not None:
            return launch_cost.gemm_cost(func, launch.shapes, report.decisions, machine)
        static = launch_cost.specialised(func, launch.shapes, launch.scalars)
        if kind == ROWS:
            return launch_cost.rows_cost(static, machine)
        return launch_cost.stock_cost(static, machine)

    def _priced_cached(self, launch: Launch) -> Cost:
        """The cost of a kernel of the KV cache, for so many new tokens."""
        report, machine = self.reports[launch.kernel], self.machine
        if launch.kernel in self.cache:
            use, func = self.cache[launch.kernel]
            try:
                row = use.row(func)
                facts = use.facts(row, func)
                if row.attends:
                    cost = self._of_attention(launch, facts)
                    return self._of_tvm(cost) if kind_of(report) == TVM else cost
                return launch_cost.append_cost(facts, launch.rows, machine)
            except (Decline, IllegalCombination):
                pass
        func = self.functions[launch.kernel]
        sizes = {var.name: launch.rows for var in launch_cost.bound_sizes(func, ())}
        if report.rows is not None:
            return launch_cost.memory_cost(launch_cost.traffic(func, sizes), machine)
        return launch_cost.stock_cost(func, machine, sizes)

    def _of_attention(self, launch: Launch, facts: Facts) -> Cost:
        """The cost of an attention of the cache."""
        if not launch.decodes:
            return launch_cost.prefill_cost(facts, launch.rows, self.machine)
        of_kind = launch_cost.latent_cost if "latent_dim" in facts else launch_cost.decode_cost
        return of_kind(facts, launch.rows, self.context, self.machine)

    def _of_tvm(self, cost: Cost) -> Cost:
        """What memory alone takes for an attention that is left to TVM."""
        time = self.machine.serial_launch + cost.bytes / self.machine.dram_bytes
        return replace(cost, time=time, at_least=True)


def kind_of(report: FunctionReport) -> str:
    """Who computes a function: one of :data:`KINDS`."""
    if report.on_tensor_cores:
        return WGMMA
    return ROWS if report.rows is not None or report.program else TVM


def _words(report: FunctionReport) -> str:
    """How a kernel without sizes of its own computes, in a few words."""
    words = report.attention or report.program or report.reason
    return str(report.rows) if report.rows is not None else " ".join(words.split())
