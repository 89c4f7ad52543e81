"""CTAs of the interpreter wait for each other: who runs when, and what never ends."""

from __future__ import annotations

import pytest

from warploom.errors import TileProgramError
from warploom.language.interpreter.waits import Signal, run_ctas, wait_until


def test_without_waits_one_runs_after_the_other():
    told = []

    def cta(number):
        for step in range(3):
            told.append((number, step))
        yield from wait_until(lambda: True, "nothing")
        told.append((number, "end"))

    run_ctas((str(number), cta(number)) for number in range(3))
    assert told == [(number, step) for number in range(3) for step in (0, 1, 2, "end")]


def test_a_cta_goes_on_when_another_has_brought_it_about():
    told, done = [], set()

    def cta(number, before):
        yield from wait_until(lambda: before is None or before in done, f"CTA {before}")
        told.append(number)
        done.add(number)
        yield Signal()

    # Each waits for the next, the last for nobody.
    run_ctas((str(n), cta(n, n + 1 if n < 5 else None)) for n in range(6))
    assert told == [5, 4, 3, 2, 1, 0]


def test_after_a_signal_both_orders_happen():
    first = set()

    def run():
        told = []

        def waits():
            for count in range(8):
                yield from wait_until(lambda count=count: told.count("signal") > count, "it")
                told.append("seen")

        def signals():
            for _ in range(8):
                told.append("signal")
                yield Signal()
                first.add(told[-1])

        run_ctas([("a", waits()), ("b", signals())])
        return told

    assert run() == run()
    assert first == {"signal", "seen"}


def test_ctas_that_wait_for_each_other_are_an_error():
    ended, raised_at = [], []

    def cta(number):
        if number:
            try:
                yield from wait_until(lambda: False, f"flag {number}")
            except TileProgramError:
                raised_at.append(number)
                raise
        ended.append(number)

    with pytest.raises(TileProgramError) as caught:
        run_ctas((f"CTA {number}", cta(number)) for number in range(8))
    assert str(caught.value) == (
        "the program never ends: all CTAs that have not ended wait, CTA 1 for flag 1; CTA 2 for "
        "flag 2; CTA 3 for flag 3; CTA 4 for flag 4; and 3 more."
    )
    assert ended == [0] and raised_at == [1]


def test_an_error_of_one_ends_all():
    def cta(fails):
        yield Signal()
        if fails:
            raise TileProgramError("wrong")
        yield from wait_until(lambda: False, "it")

    with pytest.raises(TileProgramError, match="wrong"):
        run_ctas([("a", cta(False)), ("b", cta(True))])
