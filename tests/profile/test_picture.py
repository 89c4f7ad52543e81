"""The picture of a timeline: who waits, for whom, and what ended each wait."""

from __future__ import annotations

from warploom.pictures import Rect
from warploom.profile import Span, Stream, Timeline
from warploom.profile.arrows import arrows_of
from warploom.profile.streams import Subject

SUPPLIERS = {"full": ("load",), "empty": ("compute",)}


def timeline(steps: int = 4, suppliers: dict = SUPPLIERS, emulated: bool = False) -> Timeline:
    """A producer that waits for the consumer of the step before; times of 100 ns."""
    loads, computes = [], []
    for step in range(steps):
        at = 1000.0 * step
        loads.append(Span("wait empty", "wait", at, at + 700))
        loads.append(Span("load A", "load", at + 700, at + 800))
        computes += [
            Span("wait full", "wait", at - 200, at - 150 if step == 0 else at + 0),
            Span("mma acc", "mma", at + 50, at + 690),
        ]
    streams = tuple(
        Stream(name, cta, cta, 0.0, 1000.0 * steps, tuple(spans), False)
        for cta in range(3)
        for name, spans in (("load", loads), ("compute 0", computes))
    )
    subject = Subject("kernel", ("A[64, 64] float16",), suppliers)
    return Timeline(streams, 1.5, emulated, subject)


def words(picture) -> list[str]:
    return [one.text for one in picture.words]


def test_a_producers_waiting_is_shown_as_waiting() -> None:
    picture = timeline().picture()
    shown = words(picture)
    assert "Timeline of kernel" in shown and any("A[64, 64] float16" in one for one in shown)
    assert "waits for compute (empty)" in shown and "waits 70 %" in shown
    assert any("2 of 3 recorded CTAs" in one for one in shown)
    waits = [one for one in picture.rects if one.tip.startswith("wait")]
    assert waits and all(one.hatch for one in waits)
    others = [one for one in picture.rects if one.tip and not one.tip.startswith("wait")]
    assert others and not any(one.hatch for one in others)


def test_arrows_lead_from_what_ended_a_wait() -> None:
    found = [one for one in arrows_of(timeline(), [0]) if one.target == "load"]
    assert [(one.source, one.begin, one.end) for one in found] == [
        ("compute 0", 1000.0 * step + 690, 1000.0 * step + 700) for step in range(4)
    ]
    assert arrows_of(timeline(suppliers={}), [0]) == []
    drawn = [line for line in timeline().picture().lines if line.arrow]
    none = [line for line in timeline(suppliers={}).picture().lines if line.arrow]
    assert len(none) == 1 and len(drawn) > len(none)  # that of the legend


def test_many_steps_are_shown_enlarged() -> None:
    few, many = timeline(4).picture(), timeline(200).picture()
    assert not any("enlarged" in one for one in words(few))
    assert any("enlarged" in one for one in words(many)) and many.height > few.height
    until = timeline(200).picture(until=3000.0)
    assert not any("enlarged" in one for one in words(until))


def test_all_shapes_lie_in_the_picture() -> None:
    for steps in (1, 4, 200):
        picture = timeline(steps).picture(ctas=3)
        for one in picture.of(Rect):
            assert one.x >= 0 and one.x + one.width <= picture.width + 1
            assert one.y >= 0 and one.y + one.height <= picture.height
        assert all(0 <= one.y <= picture.height for one in picture.words)


def test_units_are_those_of_the_timeline(tmp_path) -> None:
    assert "us" in words(timeline(100).picture()) and "ns" in words(timeline(4).picture())
    emulated = timeline(4, emulated=True)
    assert "instructions of the emulator" in words(emulated.picture())
    emulated.plot(tmp_path / "t.svg")
    assert (tmp_path / "t.svg").read_text() in emulated._repr_html_()


def test_an_empty_timeline_is_drawn() -> None:
    stream = Stream("load", 0, 0, 0.0, 10.0, (), False)
    assert words(Timeline((stream,), 1.0).picture())
