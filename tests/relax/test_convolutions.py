"""Convolutions as PyTorch exports them: laid out anew, gathered, and what they compute."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import warploom
from warploom.errors import StockScheduleWarning
from warploom.relax import convolutions, gather_pixels
from warploom.relax.align_broadcasts import AlignBroadcasts
from warploom.relax.convolutions import LayOutConvolutions
from warploom.relax.group_blocks import group_blocks
from warploom.relax.inspect import inspect, share_on_tensor_cores
from warploom.relax.permutations import JoinPermutations, is_permutation
from warploom.relax.sink_permutations import SinkPermutations

torch = pytest.importorskip("torch", reason="PyTorch, whose models these are")
from tests.relax.image_models import MODELS, exported  # noqa: E402

_TARGET = warploom.cuda_target("h200")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transpositions that cost nothing: small models are laid out, too."""
    for module in (convolutions, gather_pixels):
        monkeypatch.setattr(module, "saved_time", lambda *_: 1.0)
    monkeypatch.setattr(convolutions, "copy_time", lambda *_: 0.0)


def _run(module: tvm.IRModule, inputs: list[np.ndarray]) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error", StockScheduleWarning)
        executable = relax.build(module, _TARGET)
    machine = relax.VirtualMachine(executable, tvm.cuda(0))
    found = machine["main"](*(tvm.runtime.tensor(one, tvm.cuda(0)) for one in inputs))
    found = found if isinstance(found, tvm.runtime.Tensor) else found[0]
    return found.numpy().astype(np.float64)


def _assert_close(found: np.ndarray, wanted: np.ndarray, bound: float = 4e-3) -> None:
    assert found.shape == wanted.shape and np.isfinite(found).all()
    assert np.abs(found - wanted).max() <= bound * np.abs(wanted).max()


def _transpositions(module: tvm.IRModule) -> list[tuple[int, ...]]:
    """Shapes of tensors of three and more dimensions that are written in another order."""
    found = []

    def visit(expr: Any) -> None:
        if is_permutation(expr) and expr.ty.ndim > 2:
            found.append(tuple(int(extent) for extent in expr.ty.shape))

    relax.analysis.post_order_visit(module["main"], visit)
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.some(2)
def test_models(name: str, free: None, rng: np.random.Generator) -> None:
    torch.manual_seed(int(rng.integers(1 << 31)))
    make, shapes, count = MODELS[name]
    module, inputs, wanted = exported(make(), shapes)
    reports = inspect(module)
    assert sum(one.on_tensor_cores for one in reports) == count
    left = [one for one in reports if one.operations and not one.on_tensor_cores]
    assert len(left) == (name == "ConvNeXt block")  # each channel has filters of its own
    assert all(one.rows is not None for one in left)
    _assert_close(_run(module, inputs), wanted)


class _Net:
    """A random net of images in NCHW, beside what PyTorch computes of the same numbers."""

    def __init__(self, rng: np.random.Generator, image: tuple[int, ...]) -> None:
        self.rng, self.builder = rng, relax.BlockBuilder()
        self.input = rng.standard_normal(image).astype(np.float16)
        self.param = relax.Var("x", relax.TensorType(image, "float16"))
        self.values = [(self.param, torch.tensor(self.input, dtype=torch.float64))]

    def module(self, layers: int) -> tuple[tvm.IRModule, np.ndarray]:
        with self.builder.function("main", [self.param]):
            with self.builder.dataflow():
                for _ in range(layers):
                    self._add()
                result = self.builder.emit_output(self.values[-1][0])
            self.builder.emit_func_output(result)
        return self.builder.get(), self.values[-1][1].numpy()

    def _constant(self, *shape: int, scale: float = 1.0) -> tuple[Any, Any]:
        made = (scale * self.rng.standard_normal(shape)).astype(np.float16)
        return relax.const(made), torch.tensor(made, dtype=torch.float64)

    def _put(self, expr: Any, value: Any) -> None:
        self.values.append((self.builder.emit(expr), value))

    def _add(self) -> None:
        rng, (x, value) = self.rng, self.values[-1]
        kinds = ("conv", "conv", "groups", "groups", "depthwise", "residual", "concat", "pool",
                 "bias")
        kind = kinds[rng.integers(len(kinds))]
        channels, *size = value.shape[1:]
        same = [one for one in self.values[:-1] if one[1].shape == value.shape]
        if kind == "residual" and same:
            other = same[rng.integers(len(same))]
            self._put(op.nn.relu(op.add(x, other[0])), torch.relu(value + other[1]))
        elif kind == "concat" and channels <= 24:
            self._put(op.concat([x, x], axis=1), torch.cat((value, value), 1))
        elif kind == "pool" and min(size) > 3:
            made = torch.nn.functional.max_pool2d(value, 2, 2)
            self._put(op.nn.max_pool2d(x, (2, 2), (2, 2)), made)
        elif kind == "bias":
            (b, wanted) = self._constant(channels)
            shape = (1, channels, 1, 1)
            self._put(op.add(x, op.reshape(b, shape)), value + wanted.reshape(shape))
        else:
            several = [n for n in range(2, channels) if channels % n == 0]
            groups = int(rng.choice(several)) if kind == "groups" and several else 1
            self._convolve(x, value, channels if kind == "depthwise" else groups)

    def _convolve(self, x: Any, value: Any, groups: int) -> None:
        rng, (channels, *size) = self.rng, value.shape[1:]
        taps = [int(rng.integers(1, 4)) for _ in size]
        dilation = [int(rng.integers(1, 3)) for _ in size]
        padding = [int(rng.integers(t // 2, t + 1)) for t in taps]
        padding = [
            max(p, -(-(d * (t - 1) + 1 - e) // 2))
            for p, d, t, e in zip(padding, dilation, taps, size, strict=True)
        ]
        strides = [int(rng.integers(1, 4)) for _ in size]
        filters = int(rng.choice([2, 4, 8, 12, 16, 24]))
        if groups > 1:
            filters = channels if groups == channels else groups * int(rng.choice([1, 2, 4, 8]))
        scale = (channels // groups * taps[0] * taps[1]) ** -0.5
        w, wanted = self._constant(filters, channels // groups, *taps, scale=scale)
        made = torch.nn.functional.conv2d(
            value, wanted, None, strides, padding, dilation, groups=groups
        )
        self._put(
            op.nn.conv2d(x, w, strides=strides, padding=padding, dilation=dilation, groups=groups),
            made,
        )


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(24))
@pytest.mark.some(2)
def test_random_nets(number: int, free: None, rng: np.random.Generator) -> None:
    image = (int(rng.integers(1, 3)), int(rng.choice([3, 8, 16])), *rng.integers(5, 14, 2))
    net = _Net(rng, tuple(map(int, image)))
    module, wanted = net.module(6)
    _assert_close(_run(module, [net.input]), wanted, 8e-3)


def _chain(module_of: Any, *shapes: tuple[Any, ...], dtype: str = "float16") -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"p{number}", relax.TensorType(list(shape), dtype))
        for number, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(module_of(builder, *params)))
        builder.emit_func_output(out)
    return builder.get()


def _text(module: tvm.IRModule) -> str:
    with _TARGET:
        return LayOutConvolutions()(module).script()


def test_a_convolution_of_few_products_stays_between_its_neighbours() -> None:
    def lone(builder: relax.BlockBuilder, x: Any, w: Any) -> Any:
        return op.nn.conv2d(x, w, padding=1)

    small = _text(_chain(lone, (1, 8, 6, 6), (16, 8, 3, 3)))
    assert 'data_layout="NCHW"' in small and "permute_dims" not in small
    large = _text(_chain(lone, (8, 256, 28, 28), (256, 256, 3, 3)))
    assert 'data_layout="NHWC"' in large and large.count("permute_dims") == 3


def _grouped(groups: int) -> Any:
    return lambda builder, x, w: op.nn.conv2d(x, w, padding=1, groups=groups)


def test_convolutions_that_are_no_gemm_stay_as_they_are() -> None:
    # Blocks of 6 groups of 34 channels are no whole vectors.
    for groups, channels, w, dtype in ((6, 204, 34, "float16"), (1, 256, 256, "float32")):
        module = _chain(
            _grouped(groups), (8, channels, 28, 28), (channels, w, 3, 3), dtype=dtype
        )
        assert 'data_layout="NCHW"' in _text(module) and "permute_dims" not in _text(module)
    allowed = module["main"].with_attr("warploom.tf32", True)
    assert 'data_layout="NHWC"' in _text(tvm.IRModule({"main": allowed}))


#: Channels, filters and groups, and the blocks of groups, channels and filters of the kernel.
_BLOCKS = {
    (128, 128, 32): (2, 64, 64),  # ResNeXt
    (1024, 1024, 32): (16, 64, 64),
    (480, 240, 3): (3, 160, 80),  # ShuffleNet
    (768, 768, 16): (16, 48, 48),  # wav2vec 2.0
    (64, 64, 8): (1, 64, 64),
    (24, 48, 3): (1, 24, 48),
    (528, 528, 22): (11, 48, 48),  # RegNet
}


@pytest.mark.parametrize("sizes", _BLOCKS)
def test_groups_make_blocks_that_fill_the_tensor_cores(sizes: tuple[int, ...], free) -> None:
    channels, filters, groups = sizes
    module = _chain(
        _grouped(groups), (8, channels, 28, 28), (filters, channels // groups, 3, 3)
    )
    (one,) = convolutions._convolutions(module["main"])
    blocks = group_blocks(one)
    assert (blocks.count, blocks.channels, blocks.filters) == _BLOCKS[sizes]
    assert blocks.count * blocks.groups == groups
    (report,) = [one for one in inspect(module) if one.operations]
    assert report.problem.batch in (None, blocks.count) and report.problem.n == blocks.filters
    assert report.problem.k == 9 * blocks.channels


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(16))
@pytest.mark.some(2)
def test_grouped_convolutions(number: int, free: None, rng: np.random.Generator) -> None:
    """With filters that are parameters, of lines and images, with a bias and an activation."""
    groups = int(rng.choice([2, 3, 4, 8]))
    channels, filters = (8 * int(rng.integers(1, 5)) for _ in range(2))
    moves = int(rng.integers(1, 3))
    size = [int(extent) for extent in rng.integers(6, 12, moves)]
    taps = [int(tap) for tap in rng.integers(1, 4, moves)]
    options = {"strides": int(rng.integers(1, 3)), "padding": int(rng.integers(0, 2)),
               "dilation": int(rng.integers(1, 3)), "groups": groups}  # fmt: skip
    print(groups, channels, filters, size, taps, options)
    shapes = [(2, groups * channels, *size), (groups * filters, channels, *taps),
              (1, groups * filters, *[1] * moves)]  # fmt: skip

    def make(builder: relax.BlockBuilder, x: Any, w: Any, bias: Any) -> Any:
        convolve = op.nn.conv1d if moves == 1 else op.nn.conv2d
        return op.nn.relu(builder.emit(op.add(builder.emit(convolve(x, w, **options)), bias)))

    module = _chain(make, *shapes)
    assert [one.on_tensor_cores for one in inspect(module) if one.operations] == [True]
    x, w, bias = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    w /= np.float16((channels * np.prod(taps)) ** 0.5)
    convolve = torch.nn.functional.conv1d if moves == 1 else torch.nn.functional.conv2d
    exact = [torch.tensor(one, dtype=torch.float64) for one in (x, w, bias)]
    options["stride"] = options.pop("strides")
    wanted = torch.relu(convolve(*exact[:2], **options) + exact[2]).numpy()
    _assert_close(_run(module, [x, w, bias]), wanted)


#: Convolutions of volumes: channels, filters, size, taps, options, and kernels on tensor cores.
_VOLUMES: dict[str, tuple[int, int, tuple[int, ...], tuple[int, ...], dict[str, Any], int]] = {
    "cubes": (16, 24, (4, 5, 6), (3, 3, 3), {"padding": 1}, 1),
    "strides": (16, 8, (5, 8, 7), (3, 3, 3), {"padding": 1, "strides": 2}, 1),
    "times": (24, 16, (6, 4, 4), (3, 1, 1), {"padding": (1, 0, 0)}, 1),
    "images": (8, 16, (3, 6, 6), (1, 3, 3), {"padding": (0, 1, 1), "dilation": (1, 2, 2)}, 1),
    "stem": (3, 16, (4, 9, 9), (3, 5, 5), {"padding": (1, 2, 2), "strides": (1, 2, 2)}, 1),
    "tubelets": (3, 32, (4, 8, 12), (2, 4, 4), {"strides": (2, 4, 4)}, 1),
    "depthwise": (8, 8, (3, 5, 5), (3, 3, 3), {"padding": 1, "groups": 8}, 0),
    "groups": (16, 16, (3, 5, 5), (3, 3, 3), {"padding": 1, "groups": 2}, 0),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", _VOLUMES)
@pytest.mark.some(2)
def test_convolutions_of_volumes(name: str, free: None, rng: np.random.Generator) -> None:
    channels, filters, size, taps, options, count = _VOLUMES[name]
    shapes = [(2, channels, *size), (filters, channels // options.get("groups", 1), *taps)]
    module = _chain(lambda builder, x, w: op.nn.relu(builder.emit(op.nn.conv3d(x, w, **options))),
                    *shapes)  # fmt: skip
    assert sum(one.on_tensor_cores for one in inspect(module)) == count
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    w /= np.float16(np.prod(shapes[1][1:]) ** 0.5)
    options = {{"strides": "stride"}.get(name, name): value for name, value in options.items()}
    exact = (torch.tensor(one, dtype=torch.float64) for one in (x, w))
    wanted = torch.relu(torch.nn.functional.conv3d(*exact, **options)).numpy()
    _assert_close(_run(module, [x, w]), wanted)


@pytest.mark.parametrize(("size", "laid_out"), [(28, True), (2, False)])
def test_channels_with_filters_of_their_own_are_last_where_that_pays(size, laid_out) -> None:
    def depthwise(builder: relax.BlockBuilder, x: Any, w: Any) -> Any:
        return op.nn.conv2d(x, w, padding=3, groups=256)

    module = _chain(depthwise, (8, 256, size, size), (256, 1, 7, 7))
    assert ('data_layout="NHWC"' in _text(module)) == laid_out


def test_transpositions_are_at_the_borders_only(free: None) -> None:
    make, shapes, _ = MODELS["U-Net block"]
    module, _, _ = exported(make(), shapes)
    with _TARGET:
        module = LayOutConvolutions()(module)
    images = [shape for shape in _transpositions(module) if shape[0] == 1]
    # What comes in twice, and the result.
    assert sorted(images) == [(1, 7, 9, 64), (1, 7, 9, 64), (1, 64, 7, 9)]


def test_a_function_that_cannot_be_converted_stays_as_it_is(
    free: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("an operator without a rule")

    module, _, _ = exported(MODELS["Whisper stem"][0](), [(1, 80, 20)])
    monkeypatch.setattr(relax.transform, "ConvertLayout", fail)
    with _TARGET:
        tvm.ir.assert_structural_equal(LayOutConvolutions()(module), module)


_SHAPES = [(2, 3, 4, 5), (1, 8, 1, 6), (4, 1, 1, 3), (2, 2, 2, 2), (1, 12, 7, 1)]


@pytest.mark.parametrize("number", range(30))
def test_permutations_and_reshapes_are_joined_rightly(
    number: int, rng: np.random.Generator
) -> None:
    """Whatever is done to a tensor, the result stays the same."""
    shape = _SHAPES[number % len(_SHAPES)]

    def make(builder: relax.BlockBuilder, x: Any) -> Any:
        for _ in range(5):
            extents = [int(extent) for extent in x.ty.shape]
            if rng.random() < 0.5:
                x = op.permute_dims(x, list(map(int, rng.permutation(len(extents)))))
            else:
                x = op.reshape(x, _other_shape(rng, extents))
            x = builder.emit(x)
        return x

    _assert_same(_chain(make, shape), JoinPermutations(), rng)


def _assert_same(module: tvm.IRModule, step: tvm.transform.Pass, rng: Any) -> tvm.IRModule:
    """A pass leaves no more permutations than there were, and the result as it was."""
    made = step(module)
    shapes = [[int(e) for e in one.ty.shape] for one in module["main"].params]
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    found, wanted = (
        relax.VirtualMachine(relax.build(one, "llvm"), tvm.cpu())["main"](
            *map(tvm.runtime.tensor, arrays)
        ).numpy()
        for one in (made, module)
    )
    np.testing.assert_array_equal(found, wanted)
    assert made.script().count("permute_dims") <= module.script().count("permute_dims")
    return made


@pytest.mark.parametrize("number", range(20))
def test_permutations_around_elementwise_operators(
    number: int, rng: np.random.Generator
) -> None:
    order = [int(one) for one in rng.permutation(4)]
    back = order if rng.random() < 0.3 else [order.index(d) for d in range(4)]

    def make(builder: relax.BlockBuilder, x: Any, y: Any) -> Any:
        first = made = builder.emit(op.permute_dims(x, order))
        for _ in range(int(rng.integers(1, 6))):
            scale = relax.const(rng.standard_normal((3, 1, 1)).astype(np.float16))
            vector = relax.const(rng.standard_normal((1, 1, 1, 5)).astype(np.float16))
            cases = [
                lambda one: op.nn.relu(one), lambda one: op.abs(one),
                lambda one: op.multiply(one, first), lambda one: op.add(one, one),
            ]  # fmt: skip
            if order[1] == 1:
                cases.append(lambda one, scale=scale: op.add(one, scale))
            if order[3] == 3:
                cases.append(lambda one, vector=vector: op.add(vector, one))
            made = builder.emit(cases[int(rng.integers(len(cases)))](made))
        last = builder.emit(op.permute_dims(made, back))
        return op.add(last, y) if list(last.ty.shape) == list(x.ty.shape) else last

    module = _chain(make, (2, 3, 4, 5), (2, 3, 4, 5))
    steps = tvm.transform.Sequential([AlignBroadcasts(), SinkPermutations()])
    _assert_same(module, steps, rng)


def test_a_scale_of_channels_is_turned_instead_of_the_image() -> None:
    def make(builder: relax.BlockBuilder, x: Any, scale: Any) -> Any:
        image = builder.emit(op.permute_dims(x, [0, 3, 1, 2]))
        return op.permute_dims(builder.emit(op.multiply(image, scale)), [0, 2, 3, 1])

    steps = tvm.transform.Sequential([AlignBroadcasts(), SinkPermutations()])
    assert "permute_dims" not in steps(_chain(make, (2, 7, 9, 16), (16, 1, 1))).script()


@pytest.mark.parametrize("blocks", [2, 5, 9])
def test_a_residual_of_many_blocks_is_summed_once(blocks: int, rng: np.random.Generator) -> None:
    """Blocks that compute with channels last, around a residual in NCHW that a norm has made."""

    def make(builder: relax.BlockBuilder, x: Any) -> Any:
        image = builder.emit(op.permute_dims(x, [0, 3, 1, 2]))
        for _ in range(blocks):
            inner = builder.emit(op.permute_dims(image, [0, 2, 3, 1]))
            inner = builder.emit(op.nn.softmax(inner))
            scale = relax.const(rng.standard_normal((1, 4, 1, 1)).astype(np.float16))
            back = builder.emit(op.permute_dims(inner, [0, 3, 1, 2]))
            image = builder.emit(op.add(image, builder.emit(op.multiply(back, scale))))
        return op.permute_dims(image, [0, 2, 3, 1])

    module = _chain(make, (2, 3, 5, 4))
    steps = tvm.transform.Sequential([AlignBroadcasts(), SinkPermutations()])
    made = _assert_same(module, steps, rng).script()
    assert made.count("R.multiply(") == made.count("R.add(") == blocks
    assert "permute_dims" not in re.sub(r"permute_dims\(R\.const|permute_dims\(metadata", "", made)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("image", "filters", "taps", "stride", "padding"),
    [((1, 3, 15, 17), 16, 7, 2, 3), ((2, 1, 20, 9), 8, (3, 7), 1, (1, 3)),
     ((1, 2, 13, 22), 8, (2, 15), (1, 3), (0, 7)), ((1, 3, 12, 12), 8, 3, 2, 1)],
)  # fmt: skip
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.some(3)
def test_pictures_are_gathered(
    image: Any, filters: int, taps: Any, stride: Any, padding: Any, channels_last: bool,
    free: None, rng: np.random.Generator,
) -> None:  # fmt: skip
    """With zeros behind each run of a filter, or behind the last one where they would be many."""
    taps, stride, padding = (each if isinstance(each, tuple) else (each, each)
                             for each in (taps, stride, padding))  # fmt: skip
    x = rng.standard_normal(image).astype(np.float16)
    w = (rng.standard_normal((filters, image[1], *taps)) / 4).astype(np.float16)
    exact = (torch.tensor(one, dtype=torch.float64) for one in (x, w))
    wanted = torch.nn.functional.conv2d(*exact, stride=stride, padding=padding).numpy()
    options = {"strides": stride, "padding": padding}
    if channels_last:
        x, wanted = x.transpose(0, 2, 3, 1).copy(), wanted.transpose(0, 2, 3, 1)
        options |= {"data_layout": "NHWC"}

    def make(builder: relax.BlockBuilder, x: Any) -> Any:
        return op.nn.conv2d(x, relax.const(w), **options)

    module = _chain(make, x.shape)
    assert [one.problem is not None for one in inspect(module) if one.operations] == [True]
    _assert_close(_run(module, [x]), wanted)


def _other_shape(rng: np.random.Generator, extents: list[int]) -> list[int]:
    """A shape of as many elements: neighbours taken together, or one of them split."""
    at = int(rng.integers(len(extents)))
    if rng.random() < 0.5 and at + 1 < len(extents):
        return [*extents[:at], extents[at] * extents[at + 1], *extents[at + 2 :]]
    factors = [f for f in range(1, extents[at] + 1) if extents[at] % f == 0]
    factor = int(rng.choice(factors))
    return [*extents[:at], factor, extents[at] // factor, *extents[at + 1 :]]


def test_pixels_become_tokens_without_a_transposition() -> None:
    def make(builder: relax.BlockBuilder, x: Any) -> Any:
        image = builder.emit(op.permute_dims(x, [0, 3, 1, 2]))
        tokens = builder.emit(op.reshape(image, (2, 16, 63)))
        return op.permute_dims(tokens, [0, 2, 1])

    assert "permute_dims" not in JoinPermutations()(_chain(make, (2, 7, 9, 16))).script()


def test_what_is_left_says_so() -> None:
    def depthwise(builder: relax.BlockBuilder, x: Any, w: Any) -> Any:
        return op.nn.conv2d(x, w, padding=1, groups=8)

    (report,) = inspect(_chain(depthwise, (1, 8, 10, 10), (8, 1, 3, 3)))
    assert re.search("groups of a convolution", report.reason)


@pytest.mark.gpu
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.some(1)
def test_a_number_of_images_that_the_launch_knows(
    images: int, free: None, rng: np.random.Generator
) -> None:
    """A picture of three channels, a batch norm, and an operator that keeps NCHW."""
    shapes = [(16, 3, 5, 5), (16, 16, 3, 3)]
    arrays = [(0.2 * rng.standard_normal(one)).astype(np.float16) for one in shapes]
    norm = [rng.uniform(0.5, 1.5, 16).astype(np.float16) for _ in range(4)]

    def make(builder: relax.BlockBuilder, x: Any) -> Any:
        first, second = (relax.const(one) for one in arrays)
        h = builder.emit(op.nn.conv2d(x, first, strides=2, padding=2))
        h = builder.emit(op.nn.batch_norm(h, *map(relax.const, norm), axis=1, training=False))
        h = builder.emit(op.nn.relu(builder.emit(relax.TupleGetItem(h, 0))))
        h = builder.emit(op.nn.conv2d(builder.emit(op.flip(h, 2)), second, padding=1))
        return op.nn.relu(h)

    n = tvm.tirx.Var("n", "int64")
    module = relax.transform.DecomposeOpsForInference("main")(_chain(make, (n, 3, 13, 11)))
    x = rng.standard_normal((images, 3, 13, 11)).astype(np.float16)
    value, first, second, *numbers = (torch.tensor(one).double() for one in (x, *arrays, *norm))
    gamma, beta, mean, variance = numbers
    h = torch.nn.functional.conv2d(value, first, None, 2, 2)
    h = torch.relu(torch.nn.functional.batch_norm(h, mean, variance, gamma, beta, eps=1e-5))
    wanted = torch.relu(torch.nn.functional.conv2d(h.flip(2), second, None, 1, 1)).numpy()
    _assert_close(_run(module, [x]), wanted)
    reports = inspect(module)
    assert share_on_tensor_cores(reports) == 1
