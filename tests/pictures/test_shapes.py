"""Pictures and charts: what is written, and that axes can be read."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warploom.errors import WarploomError
from warploom.pictures import Dot, Line, Picture, Rect, Words, svg, write
from warploom.pictures.calibration import calibration
from warploom.pictures.chart import Axis, Frame
from warploom.pictures.palette import BLUE, ink_on, tint
from warploom.pictures.shapes import fitted, text_width

_SIZES = st.floats(1e-6, 1e9)


def _picture() -> Picture:
    made = Picture(200, 100, 'a "title" & more')
    made.add(
        Rect(1, 2, 30, 10, BLUE, "#cccccc", hatch=True, tip="<wait>"),
        Line(((0, 0), (50, 50)), dashed=True, arrow=True),
        Dot(5, 5, 2, BLUE, "near"),
        Words(10, 20, "a < b & c", bold=True, mono=True),
        Words(10, 60, "up", upright=True, anchor="middle"),
    )
    return made


def test_an_svg_has_every_shape_and_is_well_formed() -> None:
    root = ElementTree.fromstring(svg(_picture()))
    names = [one.tag.rpartition("}")[2] for one in root.iter()]
    assert {"rect", "polyline", "polygon", "circle", "pattern"} <= set(names)
    texts = [one.text for one in root.iter() if one.tag.endswith("}text")]
    titles = [one.text for one in root.iter() if one.tag.endswith("}title")]
    assert texts == ["a < b & c", "up"] and titles == ['a "title" & more', "<wait>", "near"]
    assert _picture()._repr_svg_() == svg(_picture())


def test_a_file_is_of_its_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(_picture(), tmp_path / "new" / "p.svg")
    assert (tmp_path / "new" / "p.svg").read_text() == svg(_picture())
    with pytest.raises(WarploomError, match=r"\.svg or \.png"):
        write(_picture(), tmp_path / "p.gif")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(WarploomError, match=r"pip install 'warploom\[plot\]'.*SVG"):
        write(_picture(), tmp_path / "p.png")
    assert not (tmp_path / "p.png").exists()


def test_a_png_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it draws PNGs")
    write(_picture(), tmp_path / "p.png")
    data = (tmp_path / "p.png").read_bytes()
    assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20], "big") == 2 * 200


@given(_SIZES, st.floats(1.02, 1e6), st.booleans())
def test_axes_have_few_round_ticks_between_their_ends(low: float, ratio: float, log: bool) -> None:
    axis = Axis("us", low, low * ratio, log)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 22 and ticks == sorted(set(ticks))
    assert all(-1e-6 <= axis.part(tick) <= 1 + 1e-6 for tick in ticks)
    texts = [axis.text(tick) for tick in ticks]
    assert len(set(texts)) == len(texts) or ratio < 1.1


@given(st.lists(_SIZES, min_size=1, max_size=20), st.booleans())
def test_an_axis_around_values_has_room_for_them(values: list[float], log: bool) -> None:
    axis = Axis.around("us", values, log)
    assert all(0 <= axis.part(value) <= 1 for value in values)
    frame = Frame(10, 20, 300, 200, axis, axis)
    for value in values:
        x, y = frame.at(value, value)
        assert 10 <= x <= 310 and 20 <= y <= 220


def test_a_curve_of_the_best_goes_in_steps() -> None:
    frame = Frame(0, 0, 100, 100, Axis("trials", 1, 3), Axis("speed", 0, 100))
    (line,) = frame.steps([float("-inf"), 50.0, 100.0], BLUE)
    assert line.points == ((50.0, 50.0), (100.0, 50.0), (100.0, 0.0))
    assert frame.steps([50.0], BLUE) == []


def test_a_right_prediction_lies_on_the_diagonal() -> None:
    made = Picture(300, 300)
    calibration(made, (40, 40, 200, 200), [(10.0, 10.0, BLUE), (100.0, 200.0, BLUE)], "times")
    right, wrong = made.of(Dot)
    assert right.x - 40 == pytest.approx(240 - right.y) and wrong.x - 40 < 240 - wrong.y
    assert "off by 1.41 x, in the mean" in [one.text for one in made.words]


@settings(max_examples=40)
@given(st.text("ab cd", max_size=60), st.floats(0, 500))
def test_a_fitted_text_is_no_wider_than_its_room(text: str, width: float) -> None:
    short = fitted(text, width)
    assert text_width(short) <= width + 1e-6 and (short == text or len(short) < len(text))


@pytest.mark.parametrize(("colour", "letters"), [("#000000", "#ffffff"), ("#f0e442", "#222222")])
def test_letters_are_readable(colour: str, letters: str) -> None:
    assert ink_on(colour) == letters and ink_on(tint(colour, 0.1)) == "#222222"
