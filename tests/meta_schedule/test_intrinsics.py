"""TVM's tensor intrinsics, imported quickly, are what they are otherwise."""

from __future__ import annotations

import inspect
import sys

import pytest

from warploom.meta_schedule import intrinsics

_HASHES = """
import inspect
stack = inspect.stack
if {fast}:
    from warploom.meta_schedule.intrinsics import import_intrinsics
    import_intrinsics()
import tvm, tvm_ffi
import tvm.s_tir.tensor_intrin.cuda as cuda
for name, value in sorted(vars(cuda).items()):
    if name.endswith("_INTRIN") and isinstance(value, str):
        one = tvm.s_tir.TensorIntrin.get(value)
        print(value, *(tvm_ffi.structural_hash(f) for f in (one.desc, one.impl)))
assert inspect.stack is stack
"""


@pytest.mark.slow
def test_intrinsics_are_the_same(run_python):
    fast, plain = (run_python(_HASHES.replace("{fast}", str(one))) for one in (True, False))
    assert fast.returncode == plain.returncode == 0, fast.stderr + plain.stderr
    assert fast.stdout == plain.stdout and len(fast.stdout.splitlines()) > 60


def test_stacks_are_short_in_the_importing_thread_only(tmp_path, monkeypatch):
    (tmp_path / "asks_for_its_stack.py").write_text(
        "import inspect, threading\n"
        "def ask():\n    return inspect.stack()\n"
        "mine, other = ask(), []\n"
        "thread = threading.Thread(target=lambda: other.extend(inspect.stack()))\n"
        "thread.start()\nthread.join()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(intrinsics, "_MODULE", "asks_for_its_stack")
    before = inspect.stack
    try:
        intrinsics.import_intrinsics()
        found = sys.modules["asks_for_its_stack"]
        assert [one.function for one in found.mine[:2]] == ["ask", "<module>"]
        assert found.mine[0].frame.f_code is found.ask.__code__
        assert len(found.mine) <= 8 and found.mine[0].code_context is None
        assert found.other[0].code_context is not None, "another thread gets its text"
        assert inspect.stack is before
    finally:
        sys.modules.pop("asks_for_its_stack", None)
