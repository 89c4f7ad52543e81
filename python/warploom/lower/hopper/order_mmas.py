"""Warpgroups that issue their MMAs in order, so that one computes while another multiplies.

Warpgroups that share the rows of a tile do the same at the same time: all have the tensor cores
multiply, then all compute with the results, and the tensor cores have nothing to do. Here each
issues the MMAs of a step when the warpgroup before it has issued its own. The tensor cores
work on those first that were issued first, so results come to one warpgroup after the other.

For programs whose threads use the result of an MMA in the step that has it: block scales,
attention.
"""

from __future__ import annotations

from tvm.script import tirx as T
from tvm.tirx import Buffer, Stmt, Var

from warploom.errors import Decline
from warploom.lower.emit.named_barriers import pass_mma_order, wait_for_mma_order
from warploom.lower.emit.threads import orchestrated
from warploom.tile import ir
from warploom.tile.program import TileProgram
from warploom.tile.statement import Allocation, Block, Load, Mma, Orchestrated


def order_mmas(program: TileProgram) -> TileProgram:
    """Follow the hint ``order_mmas``.

    Raises
    ------
    Decline
        If one warpgroup computes, or there is no MMA.
    """
    if not program.hints.order_mmas:
        return program
    (warpgroup,) = program.id("warpgroup").vars
    count = int(program.id("warpgroup").extents[0])
    if count == 1:
        raise Decline(
            "One warpgroup computes, so there is no other warpgroup to order MMAs with; drop the "
            "hint order_mmas, or let tiles have rows for two consumers."
        )
    body, runs = _block(program.block, warpgroup, count)
    if not runs:
        raise Decline("There are no MMAs to order; drop the hint order_mmas.")
    # The last warpgroup lets the first begin; the first takes the last arrival at the end.
    first = ir.when(T.EQ(warpgroup, count - 1), [pass_mma_order(warpgroup, count)])
    taken = ir.when(T.EQ(warpgroup, 0), [wait_for_mma_order(warpgroup)])
    return program.replace(body=(orchestrated([first]), *body, orchestrated([taken]))).decided(
        f"MMA ordering barrier: {count} warpgroups issue MMAs in order, in {runs} places"
    )


def _block(statements: Block, warpgroup: Var, count: int) -> tuple[list[Stmt], int]:
    """A block whose runs of MMAs are ordered, and how many there are, in inner blocks too."""
    runs = _runs(statements)
    begins, ends = {run[0] for run in runs}, {run[-1] for run in runs}
    number_of_runs, result = len(runs), []
    for number, statement in enumerate(statements):
        if number in begins:
            result.append(orchestrated([wait_for_mma_order(warpgroup)]))
        if statement.blocks and not isinstance(statement, Orchestrated):
            inner = [_block(block, warpgroup, count) for block in statement.blocks]
            number_of_runs += sum(runs for _, runs in inner)
            result.append(statement.with_blocks(*(body for body, _ in inner)))
        else:
            result.append(statement.raw)
        if number in ends:
            result.append(orchestrated([pass_mma_order(warpgroup, count)]))
    return result, number_of_runs


def _runs(statements: Block) -> list[list[int]]:
    """The MMAs of a block, in runs; no statement in a run uses a result of the run."""
    runs: list[list[int]] = []
    written: set[Buffer] = set()
    for number, statement in enumerate(statements):
        if isinstance(statement, (Allocation, Load)):
            continue
        effects = statement.effects
        if isinstance(statement, Mma):
            if not written or (effects.reads - effects.writes) & written:
                runs.append([])
                written.clear()
            runs[-1].append(number)
            written |= effects.writes
        elif effects.touched & written:
            written.clear()
    return runs
