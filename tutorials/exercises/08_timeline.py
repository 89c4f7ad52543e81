"""Exercises of 08_timeline.py."""

from warploom.profile import Span, Stream, Timeline
from warploom.tutorials import Exercise


def longest_wait(timeline, role):
    """The longest wait of a role: the stream's name, and how long it was; None without a wait."""
    # solution: `timeline.streams` have a role, a name and spans; a span has a category and a length
    waits = [
        (span.length, stream.name)
        for stream in timeline.streams
        if stream.role == role
        for span in stream.spans
        if span.category == "wait"
    ]
    if not waits:
        return None
    length, name = max(waits)
    return name, length
    # end


def fewest_stages(timeline_of, limit):
    """The least of 1, 2 and 4 stages with which `compute` waits less than ``limit`` of its time.

    ``timeline_of(stages)`` runs the kernel; None if none of them is enough.
    """
    # solution: `timeline.shares()` has the part of its time that each role spends in each category
    for stages in (1, 2, 4):
        if timeline_of(stages).shares()["compute"].get("wait", 0.0) < limit:
            return stages
    return None
    # end


def check_longest_wait():
    spans = (Span("wait full", "wait", 0, 30), Span("mma acc", "mma", 30, 90),
             Span("wait full", "wait", 90, 145))  # fmt: skip
    streams = (
        Stream("load", 0, 0, 0.0, 200.0, (Span("wait empty", "wait", 0, 100),), False),
        Stream("compute 0", 0, 0, 0.0, 200.0, spans, False),
        Stream("compute 1", 0, 0, 0.0, 200.0, spans[:2], False),
    )
    timeline = Timeline(streams, 1.0)
    assert longest_wait(timeline, "compute") == ("compute 0", 55)
    assert longest_wait(timeline, "load") == ("load", 100)
    assert longest_wait(timeline, "schedule") is None


def check_fewest_stages():
    asked = []

    def timeline_of(stages):
        asked.append(stages)
        spans = (Span("wait full", "wait", 0, 80 / stages), Span("mma acc", "mma", 80, 100))
        return Timeline((Stream("compute 0", 0, 0, 0.0, 100.0, spans, False),), 1.0)

    assert fewest_stages(timeline_of, 0.9) == 1 and asked == [1]
    assert fewest_stages(timeline_of, 0.5) == 2
    assert fewest_stages(timeline_of, 0.3) == 4
    assert fewest_stages(timeline_of, 0.1) is None


EXERCISES = [
    Exercise("The longest wait of a role", check_longest_wait),
    Exercise("The least number of stages that keeps a role from waiting", check_fewest_stages),
]
