"""What a notebook shows of errors and reports is well-formed, and has the text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from warploom.compiler.compile_report import CompileReport, Stage
from warploom.emulator import LaunchReport
from warploom.errors import Decline, IllegalCombination
from warploom.pictures import Picture, Words

SHOWN = [
    (Decline("The tile <A_s> is too large & wide."), "The tile <A_s> is too large & wide."),
    (IllegalCombination("k is 3"), "IllegalCombination"),
    (LaunchReport({"instructions": {"wgmma": 12345}}), "12,345"),
    (CompileReport("sm_90a", (Stage("lower", 1.5),), (), ()), "lower 1.50 s"),
]


@pytest.mark.parametrize(("one", "text"), SHOWN, ids=lambda one: type(one).__name__)
def test_objects_show_themselves(one, text):
    root = ElementTree.fromstring(one._repr_html_())
    assert text in "".join(root.itertext())


def test_pictures_show_themselves():
    root = ElementTree.fromstring(Picture(10, 10, "", [Words(1, 1, "<a>")])._repr_svg_())
    assert "<a>" in "".join(root.itertext())
