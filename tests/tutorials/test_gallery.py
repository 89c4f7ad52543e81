"""The gallery: every page is right, and its kernels of large sizes compile without a problem."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.shared.paths import ROOT
from warploom.compiler.report import compile_report
from warploom.errors import WarploomError
from warploom.target import cuda_target
from warploom.tutorials import gallery

FOLDER = ROOT / "tutorials" / "gallery"
PAGES = gallery.pages(FOLDER)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.some(5)
def test_page_is_right(name, capsys):
    gallery.check(gallery.load(PAGES[name]))
    lines = capsys.readouterr().out.splitlines()
    assert sum(": largest errors" in line for line in lines) == 1 + len(gallery.ARCHITECTURES)


@pytest.mark.parametrize("arch", ["h200", "sm_100a"])
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.some(1)
@pytest.mark.in_turn(3)
def test_large_kernels_neither_spill_nor_serialise(name, arch):
    kernel = gallery.load(PAGES[name])
    report = compile_report(kernel.make(kernel.large), cuda_target(arch))
    assert report.kernels and not report.problems, str(report)


def test_table_counts_the_lines_of_every_page():
    rows = re.findall(
        r"^\| \[(\w+)\]\(\1\.py\) \| (\d+) \|", (FOLDER / "README.md").read_text(), re.M
    )
    counted = {name: gallery.load(path).code_lines for name, path in PAGES.items()}
    assert {name: int(lines) for name, lines in rows} == counted


def test_code_lines():
    assert gallery.code_lines("def f():\n\n    # nothing\n    return 1  # one\n") == 2


def example(**changes: object) -> gallery.Kernel:
    page = gallery.load(PAGES["transposition"])
    return gallery.Kernel(**{name: getattr(page, name) for name in page.__annotations__} | changes)


@pytest.mark.gpu
def test_a_wrong_result_is_an_error():
    wrong = example(reference=lambda x: np.transpose(x) + np.eye(136, 72))
    with pytest.raises(WarploomError, match="Result 0 of interpreter has an error of"):
        gallery.check(wrong)


def test_sizes_fit_the_program():
    with pytest.raises(
        WarploomError, match=r"large sizes .* of a gallery kernel: missing a required"
    ):
        example(large={"M": 64})


def test_results_take_open_sizes_from_inputs():
    kernel = gallery.load(PAGES["varlen_attention"])
    inputs = kernel.data(kernel.small)
    shapes = kernel.results(kernel.make(kernel.small), inputs)
    assert shapes == [(inputs[0].shape, "float16")]


def test_poison_is_no_number():
    of_float, of_int = gallery.poisoned([((2,), "bfloat16"), ((2,), "int32")])
    assert np.isnan(of_float.astype("float32")).all() and (of_int == np.iinfo("int32").min).all()


def test_files_that_are_no_pages(tmp_path):
    with pytest.raises(WarploomError, match="has no pages of the gallery"):
        gallery.pages(tmp_path)
    (tmp_path / "page.py").write_text("KERNEL = 1\n")
    with pytest.raises(WarploomError, match=r"page\.py has no KERNEL"):
        gallery.load(tmp_path / "page.py")
