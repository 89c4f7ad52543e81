"""Mutants that no test of behaviour can tell from the package, each with its reason."""

from __future__ import annotations

#: ``SourceMutant.key`` -> reason.
EQUIVALENTS: dict[tuple[str, ...], str] = {
    (
        "lower/blackwell/split_roles.py",
        "RoleSplitter._touch",
        "self.under_way.update(tile for tile in tiles if is_accumulator(tile))",
        "is_accumulator(tile)",
        "True",
        "0",
    ): "a shared tile changes its role after a wait that it does not need: later, never too early",
    (
        "ops/copy_fragment.py",
        "_vector",
        "starts = [tile.start, *(extent for d, extent in bounds if d == len(dims) - 1)]",
        "1",
        "2",
        "0",
    ): "_strides_allow asks the same of the last extent of the layout, which ends where rows do",
    (
        "ops/dispatch.py",
        "_short",
        'return next((line for line in reversed(lines) if line.startswith("T.")), lines[-1])',
        'line.startswith("T.")',
        "True",
        "0",
    ): "the printer puts a call on one line, the last",
    (
        "decide/machine.py",
        "Machine",
        "tensor_bytes: int = 4096",
        "4096",
        "4097",
        "0",
    ): "a number that was measured on a GPU: nothing but a GPU says that it is another",
    (
        "language/interpreter/primitives.py",
        "_zero",
        'dst.operand.require_tile("the destination of zero")',
        'dst.operand.require_tile("the destination of zero")',
        "pass",
        "0",
    ): "the checker of tile programs has asked the same before the interpreter begins",
    (
        "lower/blackwell/split_roles.py",
        "RoleSplitter._release",
        "mask = ring.released_in(cluster.vars[0] if cluster else 0)",
        "0",
        "1",
        "1",
    ): "without a cluster no ring has peers, so that no rank of a CTA is looked at",
    (
        "lower/nests/register_numbers.py",
        "_registers_of",
        "held = np.full((shape[0], register_tile.size), -1)",
        "1",
        "2",
        "0",
    ): "any number below 0 says that a thread does not hold an element",
    (
        "gemm/axes.py",
        "",
        "_UNKNOWN_EXTENT = 4096",
        "4096",
        "4095",
        "0",
    ): "a guess of sizes that only the launch knows: no rule depends on the very number",
}
