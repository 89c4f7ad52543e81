"""Records of CUDA sources: names of variables do not count, everything else does."""

from __future__ import annotations

import pytest

from tests.shared import cuda_record

KERNEL = """\
extern "C" __global__ void kernel(float* a) {
  int row = threadIdx.x;  // a comment
  a[row] = scale(a[row], 2);
}
"""


@pytest.mark.parametrize(
    ("old", "new"), [("row", "line"), ("// a comment", ""), ("  int row", "int    row")]
)
def test_what_does_not_count(old, new):
    assert cuda_record.plain(KERNEL) == cuda_record.plain(KERNEL.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scale", "other"), ("threadIdx.x", "threadIdx.y"), ("float", "half"), (", 2", ", 3"),
        ("a[row] =", "row ="), ("void kernel", "void other"),
    ],
)  # fmt: skip
def test_what_counts(old, new):
    assert cuda_record.plain(KERNEL) != cuda_record.plain(KERNEL.replace(old, new))


def test_two_records_are_compared(tmp_path, capsys):
    for name, constant in (("before", 2), ("after", 3)):
        recorder = cuda_record.Recorder(tmp_path / name, "one")
        recorder.add(KERNEL)
        recorder.pytest_runtest_logfinish("tests/same")
        recorder.pytest_runtest_logfinish("tests/nothing")
        recorder.add(KERNEL.replace("2", str(constant)))
        recorder.pytest_runtest_logfinish("tests/other")
    folders = [str(tmp_path / name) for name in ("before", "after")]
    assert cuda_record.main(*folders) == 1
    text = capsys.readouterr().out
    assert "tests/other: 1 sources before, 1 after" in text
    assert "-v0[v1] = scale(v0[v1], 2);" in text and "+v0[v1] = scale(v0[v1], 3);" in text
    assert "2 tests compile 2 sources; 1 tests compile others." in text
    assert cuda_record.main(folders[0], folders[0]) == 0
