"""Every example in the docstring of a builtin runs, and does what it says."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tvm

from tests.language.builtins.examples import BLACKWELL, TILE_PROGRAMS, examples
from warploom import emulator
from warploom.lower.lowerings import lower
from warploom.target import cuda_target

EXAMPLES = examples()
#: NVRTC takes seconds for the headers of cooperative groups, which other kernels do without.
LONG = ("sync_grid",)
KERNELS = [name for name in EXAMPLES if name not in (*TILE_PROGRAMS, *LONG)]


@functools.cache
def compiled(arch: str, names: tuple[str, ...]) -> tvm.runtime.Executable:
    """All examples of an architecture in one module: one compilation."""
    module = tvm.IRModule({name: EXAMPLES[name].func() for name in names})
    return tvm.compile(module, cuda_target(arch), tir_pipeline="warploom")


def run(name: str, names: tuple[str, ...], rng: np.random.Generator) -> None:
    example = EXAMPLES[name]
    a = rng.standard_normal(128).astype("float32")
    arguments = [a, np.full(128, np.nan, "float32")]
    executable = compiled(example.arch, names)
    if emulator.is_enabled():
        result = emulator.run(executable, arguments, kernel=name, arch=example.arch)
        after = result.outputs[1]
    else:
        tensors = [tvm.runtime.tensor(one, tvm.cuda(0)) for one in arguments]
        executable[name](*tensors)
        after = tensors[1].numpy()
    expected = example.expected(a)
    if expected is not None:
        np.testing.assert_array_equal(after, expected)


def test_every_builtin_has_an_example():
    assert len(EXAMPLES) == 52


@pytest.mark.gpu
@pytest.mark.parametrize("blackwell", [False, True])
def test_examples(blackwell, rng):
    names = tuple(name for name in KERNELS if (name in BLACKWELL) == blackwell)
    if blackwell and not emulator.is_enabled():
        pytest.skip("needs a GPU of compute capability 10.0")
    failed = {}
    for name in names:
        try:
            run(name, names, rng)
        except (AssertionError, emulator.EmulatorError) as error:
            failed[name] = str(error)
    assert not failed, failed


@pytest.mark.gpu
@pytest.mark.parametrize("name", LONG)
def test_long_examples(name, rng):
    run(name, (name,), rng)


@pytest.mark.parametrize("name", TILE_PROGRAMS)
def test_hints(name):
    text = lower(EXAMPLES[name].func(), "sm_90a").script()
    assert ("setmaxnreg" in text) == name.startswith("annotate")
