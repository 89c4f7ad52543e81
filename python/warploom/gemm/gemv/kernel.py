"""The kernel: warps that share K load, dequantise and multiply, and add up through shared memory.

A warp has all rows of a tile of weights and a part of K. Its lanes load several steps ahead into
registers; as soon as a step has been multiplied, its registers take the next one. Sums of all warps
meet in shared memory, where each thread adds those of one element and stores its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.sym.analyzer import Analyzer
from tvm.tirx import Buffer, PrimFunc, Stmt, Var

from warploom.decide.config import Config
from warploom.decide.gemv_rules import loads_x_ahead, warps_of, weight_bits
from warploom.errors import Decline
from warploom.gemm.equations import loads, simplify
from warploom.gemm.gemv.lanes import Lanes, Point
from warploom.gemm.gemv.operands import ROWS, WEIGHTS, LaneOperand
from warploom.gemm.gemv.results import CHAINS, Place, Results
from warploom.gemm.memory import static
from warploom.gemm.problem import GemmFunction
from warploom.gemm.thread_kernel import framed, ids_of, parameter
from warploom.intrin.mma_sync import MMA_M, MMA_N, MMA_SUMS, QUAD, multiply
from warploom.lower.emit.next_kernel import let_next_start, wait_for_last
from warploom.tile import ir

#: The attribute with the numbers of parameters that no kernel before this one writes, as far as
#: it may still run: what is read of them does not wait for it.
CONSTANT = "warploom.constant_params"
_WARP = 32
#: The attribute of a kernel that is compiled for several CTAs of an SM.
_MIN_CTAS = "tirx.launch_bounds_min_blocks_per_sm"
#: Bits of the widest load, and how many times as many loads a lane may need.
_LOAD_BITS, _MOST_LOADS = 128, 4


def gemv_kernel(gemm: GemmFunction, config: Config) -> PrimFunc:
    """The kernel of a function with few rows, for a config whose ``gemv`` is set.

    Its parameters are those of the S-TIR function, in the same order and of the same shapes.

    Raises
    ------
    Decline
        If weights are computed in a way that has no pairs of elements; the message names them.
    IllegalCombination
        If the config does not suit the problem.
    """
    config.check(gemm.problem)
    if len(gemm.summed) != 1 or gemm.pixels or gemm.reductions:
        raise Decline("a GEMV sums along one axis, and reduces no rows.")
    if gemm.products[0].a.load is None:
        raise Decline("the rows of a GEMV are loaded as they lie in memory.")
    for param in gemm.func.params:
        if ir.is_buffer(param) and not ir.is_constant(param.elem_offset, 0):
            raise Decline(f"{param.name} is a view, which may begin anywhere; copy it.")
    return _Kernel(gemm, config).kernel()


class _Kernel:
    """Builds the statements of one kernel."""

    def __init__(self, gemm: GemmFunction, config: Config) -> None:
        self.gemm, self.config = gemm, config
        made = {param: parameter(param) for param in gemm.func.params}
        self.table: dict[Var, Any] = dict(made)
        self.views: list[Stmt] = []
        for view in gemm.views:
            shape = [ir.substitute(extent, made) for extent in view.buffer.shape]
            seen = tirx.decl_buffer(shape, str(view.buffer.dtype), view.buffer.name)
            self.views.append(tirx.DeclBuffer(seen, data=made[view.param].data))
            self.table[view.buffer] = seen
        names = ("warp", "group", "quad", "step", "first_row", "tile")
        self.warp, self.group, self.quad, self.step, self.row, self.tile = (
            Var(name, "int32") for name in names
        )
        self.thread = Var("thread", "int32")
        self.warps, self.blocks = warps_of(config), config.tile_n // MMA_M
        k = static(gemm.summed[0].extent)
        assert k is not None  # a rule of the config
        self.steps = k // config.tile_k
        #: Steps of a warp, and how often it goes round its registers.
        self.each = -(-self.steps // self.warps)
        self.rounds = -(-self.each // config.stages)
        self.analyzer = self._analyzer()
        self.lanes, self.weights = self._weights()
        self.x = self._x()
        self.ahead = loads_x_ahead(config, gemm.problem)
        #: Registers of X: of the step that is multiplied, and of the next one.
        self.now: dict[Buffer, Buffer] = {}
        self.next: dict[Buffer, Buffer] = {}

    def kernel(self) -> PrimFunc:
        """The whole function."""
        gemm = self.gemm
        cta = Var("cta", "int32")
        across = simplify(T.truncdiv(gemm.columns.extent, self.config.tile_n))
        down = simplify(T.truncdiv(gemm.rows.extent + (MMA_N - 1), MMA_N))
        batch = reduce(lambda x, y: x * y, (axis.extent for axis in gemm.batch), 1)
        grid = simplify(across * down * batch)
        lane = T.truncmod(self.thread, _WARP)
        body: list[Stmt] = [
            *ids_of(cta, self.thread, grid, self.warps * _WARP), let_next_start(), *self.views,
            tirx.Bind(self.warp, T.truncdiv(self.thread, _WARP)),
            tirx.Bind(self.group, T.truncdiv(lane, QUAD)),
            tirx.Bind(self.quad, T.truncmod(lane, QUAD)),
            tirx.Bind(self.tile, T.truncmod(cta, across)),
        ]  # fmt: skip
        rest: Any = T.truncdiv(cta, across)
        body.append(tirx.Bind(self.row, T.truncmod(rest, down) * MMA_N))
        rest = T.truncdiv(rest, down)
        for axis in reversed(gemm.batch):
            body.append(tirx.Bind(axis.var, T.truncmod(rest, axis.extent)))
            rest = T.truncdiv(rest, axis.extent)
        results = Results(gemm, self.config, self.lanes, self.table)
        place = Place(self.thread, self.warp, self.group, self.quad, self.row, self.tile)
        work = ir.seq([*self._sums(), *self._loop(), *results.statements(self.sums, place)])
        has_rows = static(gemm.rows.extent) is not None
        body.append(ir.when(True if has_rows else self.row < gemm.rows.extent, [work]))
        bound = tirx.IntImm("int32", self.config.ctas_per_sm)
        return framed(gemm.func, self.table, [tirx.AttrStmt(0, _MIN_CTAS, bound, ir.seq(body))])

    def _analyzer(self) -> Analyzer:
        """Ranges of the variables of a lane."""
        gemm, analyzer = self.gemm, Analyzer()
        known = {self.warp: self.warps, self.group: MMA_N, self.quad: QUAD, self.step: self.steps}
        for var, extent in known.items():
            analyzer.bind(var, ir.whole_range(extent))
        analyzer.bind(self.tile, ir.whole_range((gemm.problem.n or 0) // self.config.tile_n))
        return analyzer

    def _weights(self) -> tuple[Lanes, list[LaneOperand]]:
        """What a lane has of the weights of each product: rows in the order of fewer loads."""
        bits, depth = weight_bits(self.gemm.problem), self.config.tile_k
        found, reason = [], None
        for together in (False, True):
            lanes = Lanes(self.blocks, bits, depth, together)
            try:
                made = [self._lane_weights(lanes, one.b.value) for one in self.gemm.products]
                found.append((lanes, made))
            except Decline as declined:
                reason = reason or declined
        if reason is not None and not found:
            raise reason
        lanes, made = min(found, key=lambda pair: sum(one.loads for one in pair[1]))
        most = _MOST_LOADS * lanes.rows * lanes.share * bits // _LOAD_BITS
        if max(one.loads for one in made) > most + 2 * lanes.rows:
            raise Decline(
                f"weights lie so that a lane needs {made[0].loads} loads for a step of "
                f"{lanes.rows} x {lanes.share}: use more columns."
            )
        return lanes, made

    def _lane_weights(self, lanes: Lanes, value: Any) -> LaneOperand:
        points = [
            Point({
                **self.table, self.gemm.summed[0].var: self._k(lanes, offset),
                self.gemm.columns.var: self.tile * self.config.tile_n + lanes.row(slot, self.group),
            }, self.analyzer)
            for slot in range(lanes.rows) for pair in lanes.pairs for offset in pair
        ]  # fmt: skip
        return LaneOperand(value, points, self.analyzer, WEIGHTS)

    def _x(self) -> LaneOperand:
        """What a lane has of the rows, of which those behind the last stand for themselves."""
        gemm, lanes = self.gemm, self.lanes
        row = T.min(self.row + self.group, gemm.rows.extent - 1)
        if ir.is_constant(gemm.rows.extent, 1):
            row = tirx.const(0, "int32")
        points = [
            Point({**self.table, gemm.summed[0].var: self._k(lanes, offset), gemm.rows.var: row},
                  self.analyzer)
            for pair in lanes.pairs for offset in pair
        ]  # fmt: skip
        return LaneOperand(gemm.products[0].a.value, points, self.analyzer, ROWS)

    def _k(self, lanes: Lanes, offset: int) -> Any:
        return self.step * self.config.tile_k + self.quad * lanes.share + offset

    def _sums(self) -> Iterator[Stmt]:
        count = len(self.gemm.products) * self.blocks * CHAINS * MMA_SUMS
        self.sums = _registers(count, "sums")
        yield tirx.AllocBuffer(self.sums)
        for number in range(count):
            yield tirx.BufferStore(self.sums, tirx.const(0, "float32"), [number])

    def _loop(self) -> Iterator[Stmt]:
        """All steps of a warp: the first ones are loaded, then each is replaced by a later one.

        X is loaded a step ahead, too, if there are registers for it: it comes from a cache, and yet
        later than the warp needs it.
        """
        stages = min(self.config.stages, self.each)
        places = [
            {old: new for one in self.weights for old, new in one.registers().items()}
            for _ in range(stages)
        ]
        self.now = self.x.registers()
        self.next = self.x.registers() if self.ahead else self.now
        for place in (*places, self.now, *([self.next] if self.ahead else [])):
            yield from map(tirx.AllocBuffer, place.values())
        first = [self._loaded(place, stage) for stage, place in enumerate(places)]
        early = self._has_constant_weights()
        yield from (*first, wait_for_last()) if early else (wait_for_last(), *first)
        if self.ahead:
            yield from self._x_loaded(self.now, 0)
        if self.rounds == 1:
            for stage, place in enumerate(places):
                yield self._guarded(stage, self._multiplied(place, stage))
            return
        count = Var("round", "int32")
        self.analyzer.bind(count, ir.whole_range(self.rounds))
        body: list[Stmt] = []
        for stage, place in enumerate(places):
            number = count * stages + stage
            body.append(self._guarded(number, self._multiplied(place, number)))
            body.append(self._loaded(place, number + stages))
        yield ir.loop(count, self.rounds, body)

    def _has_constant_weights(self) -> bool:
        """Whether no kernel that may still run writes what the weights are read from."""
        gemm = self.gemm
        constant = {int(number) for number in (gemm.func.attrs or {}).get(CONSTANT, ())}
        read = {
            gemm.param_of(load.source) for one in gemm.products for load in loads(one.b.value)
        }
        params = list(gemm.func.params)
        return all(params.index(source) in constant for source in read)

    def _x_loaded(self, registers: dict[Buffer, Buffer], number: Any) -> list[Stmt]:
        """The loads of X of a step; behind the last step that one once more."""
        step = T.min(self._step(number), self.steps - 1)
        return self.x.load({**registers, self.step: simplify(step)})

    def _loaded(self, place: dict[Buffer, Buffer], number: Any) -> Stmt:
        """The loads of a warp's step."""
        table = {**place, self.step: self._step(number)}
        return self._guarded(number, [one for w in self.weights for one in w.load(table)])

    def _step(self, number: Any) -> Any:
        return simplify(self.warp * self.each + number)

    def _guarded(self, number: Any, statements: list[Stmt]) -> Stmt:
        """Statements for a step of a warp, if there is one of that number."""
        inside = (ir.as_expr(number) < self.each, self._step(number) < self.steps)
        unknown = [one for one in inside if not self.analyzer.can_prove(one)]
        return ir.when(reduce(T.And, unknown) if unknown else True, statements)

    def _multiplied(self, place: dict[Buffer, Buffer], number: Any) -> list[Stmt]:
        """A step: all blocks of rows of all products are multiplied with X."""
        dtype, pairs = self.gemm.problem.a_dtype, len(self.lanes.pairs)
        table = {**place, **self.now}
        last = isinstance(number, int) and number + 1 >= self.each
        if self.ahead:
            statements = [] if last else self._x_loaded(self.next, number + 1)
        else:
            statements = self._x_loaded(self.now, number)
        for pair in range(0, pairs, 2):
            columns = [self.x.word(pair + half, table) for half in range(2)]
            for product, weights in enumerate(self.weights):
                for block in range(self.blocks):
                    rows = [
                        weights.word((2 * block + half) * pairs + pair + later, table)
                        for later in range(2) for half in range(2)
                    ]  # fmt: skip
                    chain = pair // 2 % CHAINS
                    first = ((product * self.blocks + block) * CHAINS + chain) * MMA_SUMS
                    sums = [self.sums[first + number] for number in range(MMA_SUMS)]
                    statements.append(ir.evaluate(multiply(dtype, sums, rows, columns)))
        if self.ahead and not last:
            for old, new in self.now.items():
                later = self.next[old]
                moves = (tirx.BufferStore(new, later[i], [i]) for i in range(int(new.shape[0])))
                statements.extend(moves)
        return statements

def _registers(count: int, name: str) -> Buffer:
    return ir.words_view(count, "float32", name)
