"""The benchmarks of block scales and of groups, with numpy in the place of the GPU."""

import json
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import tvm

from tests.bench.on_host import TORCH, Result, on_host
from warploom.errors import WarploomError
from warploom_bench import block_scaled, grouped
from warploom_bench.block_scaled import BlockScaledShape
from warploom_bench.check import deviation
from warploom_bench.grouped import GroupedShape, group_starts
from warploom_bench.report import EXIT_RIGHT, EXIT_WRONG

F8 = ml_dtypes.float8_e4m3fn


class Tensor(np.ndarray):
    """With PyTorch's order of dimensions to exchange."""

    def transpose(self, first, second):
        return self.swapaxes(first, second).view(Tensor)


def blocks_of(o):
    """A and B times their scales, in float64."""
    (m, k), n = o.a.shape, o.b.shape[0]
    a = o.a.astype(float) * np.repeat(o.scale_a.T, 128, 1)[:m, :k]
    return a, o.b.astype(float) * np.repeat(np.repeat(o.scale_b, 128, 0), 128, 1)[:n, :k]


def block_error(o):
    a, b = blocks_of(o) if o.blocks else (o.a, o.b)
    return deviation(np.asarray(o.c), np.asarray(a @ b.T))


def group_error(o):
    pairs = list(zip(o.starts, o.starts[1:], strict=False))
    exact = np.concatenate([o.x[a:b] @ o.w[g].T for g, (a, b) in enumerate(pairs)])
    return deviation(np.asarray(o.result), np.asarray(exact))


def block_operands(torch, shape, seed):
    rng = np.random.default_rng(seed)
    c = np.full((shape.m, shape.n), np.nan).view(Result)
    c = [c.copy() for _ in range(3)]
    numbers = [rng.standard_normal(size) for size in ((shape.m, shape.k), (shape.n, shape.k))]
    scales = [rng.uniform(0.5, 2, size) for size in shape.scale_shapes]
    return [block_scaled.Operands(*numbers, *scales, one, np.ones(1)) for one in c]


def group_operands(torch, shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((shape.m, shape.k))
    w = rng.standard_normal((shape.groups, shape.n, shape.k)).view(Tensor)
    starts = group_starts(shape, seed)
    c = np.full((shape.m, shape.n), np.nan).view(Result)
    return [grouped.Operands(x, w, starts, starts.tolist(), c.copy()) for _ in range(3)]


@pytest.fixture
def host(monkeypatch):
    """``compiled`` records changes, ``sign`` is that of our results, PyTorch lacks ``lacks``."""
    found = SimpleNamespace(compiled=[], sign=1, lacks=())

    def scaled_mm(a, b, scale_a, scale_b, out_dtype, out, use_fast_accum=False):
        of_blocks = np.size(scale_a) > 1
        assert use_fast_accum != of_blocks
        if of_blocks and "blocks" in found.lacks:
            raise RuntimeError("Invalid scaling configuration.\nmore")
        o = SimpleNamespace(a=a, b=b.T, scale_a=scale_a.T, scale_b=scale_b.T)
        a, b = blocks_of(o) if of_blocks else (a, b.T)
        np.matmul(a, b.T, out=out)

    def grouped_mm(x, w, offs):
        ends = enumerate(zip([0, *offs], offs, strict=False))
        return np.concatenate([x[a:b] @ w[g] for g, (a, b) in ends])

    def program_of_blocks(shape, changes=""):
        found.compiled.append(changes)

        def run(a, b, scale_a, scale_b, c):
            a, b = blocks_of(SimpleNamespace(a=a, b=b, scale_a=scale_a, scale_b=scale_b))
            np.matmul(found.sign * a, b.T, out=c)

        return run

    def program_of_groups(shape, changes=""):
        found.compiled.append(changes)

        def run(x, w, indptr, c):
            c[:] = found.sign * grouped_mm(x, w.transpose(1, 2), indptr[1:])

        return run

    found.torch = SimpleNamespace(
        **vars(TORCH), _scaled_mm=scaled_mm, _grouped_mm=grouped_mm, mm=np.matmul,
        backends=SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace())),
    )  # fmt: skip
    on_host(monkeypatch, found.torch)
    for module, program, operands, error in (
        (block_scaled, program_of_blocks, block_operands, block_error),
        (grouped, program_of_groups, group_operands, group_error),
    ):
        monkeypatch.setattr(module, "program", program)
        monkeypatch.setattr(module, "make_operands", operands)
        monkeypatch.setattr(module, "check", error)
    return found


BLOCKS = (block_scaled, ["--shape", "8x24x256", "--shape", "5x8x512"])
GROUPS = (grouped, ["--m", "9", "--m", "4", "--layer", "3x16x32"])


@pytest.mark.parametrize(("module", "arguments"), [BLOCKS, GROUPS])
def test_command_compares_with_what_the_library_has(host, tmp_path, module, arguments):
    arguments = [*arguments, "--rounds", "2", "--burst-only", "--variant", "stages=2"]
    host.lacks = ("blocks",)
    assert module.main([*arguments, "--out", str(tmp_path)]) == EXIT_RIGHT
    (path,) = tmp_path.glob("*.json")
    comparisons = json.loads(path.read_text())["comparisons"]
    names = [[e["name"] for e in c["entries"]] for c in comparisons]
    libraries = {
        block_scaled: ["cuBLASLt, no scales"],
        grouped: ["torch._grouped_mm", "cuBLAS, one by one"],
    }[module]
    expected = ["warploom", libraries[0], "warploom stages=2", *libraries[1:]]
    assert names == [expected, expected]
    assert host.compiled == ["", "stages=2"] * 2
    host.sign, host.lacks = -1, ()
    assert module.main(arguments) == EXIT_WRONG


def test_changes_are_checked_before_anything_is_compiled(host):
    with pytest.raises(WarploomError, match="changes nothing"):
        grouped.main(["--variant", "stages"])
    assert not host.compiled


def test_groups_are_uneven_and_have_all_rows():
    starts = group_starts(GroupedShape("g", 64, 1024, 8, 8), 0)
    sizes = np.diff(starts)
    assert starts[0] == 0 and starts[-1] == 1024 and len(sizes) == 64
    assert sizes.min() < 4 < 48 < sizes.max()


@pytest.mark.gpu
def test_our_gemm_of_blocks(rng):
    shape = BlockScaledShape("g", 70, 136, 256)
    (o,) = block_operands(None, shape, 1)[:1]
    o.a, o.b = (np.rint(2 * np.clip(x, -2, 2)).astype(F8) for x in (o.a, o.b))
    c = np.full((shape.m, shape.n), np.nan, np.float32).astype(ml_dtypes.bfloat16)
    scales = [x.astype(np.float32) for x in (o.scale_a, o.scale_b)]
    device = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in (o.a, o.b, *scales, c)]
    on_device = block_scaled.Operands(*device, None, blocks=False)
    block_scaled.our_gemm(block_scaled.program(shape, "tile=64x128x128,stages=2")["main"])(
        on_device
    )
    o.c = on_device.c.numpy().astype(float)
    assert on_device.blocks and block_error(o).is_within(2.0**-8)


@pytest.mark.gpu
def test_our_gemm_of_groups(rng):
    shape = GroupedShape("g", 5, 90, 72, 64, "float16")
    (o,) = group_operands(None, shape, 1)[:1]
    o.x, o.w = o.x.astype(np.float16), o.w.view(np.ndarray).astype(np.float16)
    c = np.full((shape.m, shape.n), np.nan, np.float16)
    x, w, indptr, c = (tvm.runtime.tensor(one, tvm.cuda(0)) for one in (o.x, o.w, o.indptr, c))
    on_device = grouped.Operands(x, w, indptr, o.starts, c)
    grouped.our_gemm(grouped.program(shape, "tile=64x64x64,stages=2")["main"])(on_device)
    o.result, o.x, o.w = (a.astype(float) for a in (on_device.result.numpy(), o.x, o.w))
    assert group_error(o).is_within(5e-4)
