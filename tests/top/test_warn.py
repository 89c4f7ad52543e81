"""Warnings of warploom: once for each compilation, at the author's line, from the cache too."""

import threading
import warnings

import pytest
import tvm

import warploom
from warploom.errors import (
    LoweringWarning,
    StockScheduleWarning,
    TileProgramWarning,
    WarploomWarning,
)
from warploom.warn import Notice, deferred, silenced, warn

CATEGORIES = (LoweringWarning, StockScheduleWarning, TileProgramWarning)


def _span(name="author.py", line=7):
    return tvm.ir.Span(tvm.ir.SourceName(name), line, line, 1, 2)


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_warning_names_the_authors_line(category):
    with pytest.warns(category, match="^text$") as caught:
        warn("text", category, _span())
    (one,) = caught
    assert (one.filename, one.lineno) == ("author.py", 7)


@pytest.mark.parametrize("category", CATEGORIES)
def test_calls_within_calls_are_named_by_the_authors_line(category):
    """A statement that a helper of the package wrote has a span of several places."""
    inner = tvm.ir.SequentialSpan([_span(warploom.__file__, 3), _span("helper.py", 9)])
    with pytest.warns(category, match="^text$") as caught:
        warn("text", category, tvm.ir.SequentialSpan([inner, _span()]))
    assert (caught[0].filename, caught[0].lineno) == ("helper.py", 9)


def test_without_a_line_the_caller_is_named():
    with pytest.warns(LoweringWarning) as caught, deferred():
        warn("text", LoweringWarning)
    assert caught[0].filename == __file__


def test_a_deferred_warning_is_issued_once_and_by_the_outermost_block():
    with pytest.warns(WarploomWarning) as caught:
        with deferred() as outer:
            for _ in range(2):
                with deferred():
                    warn("text", LoweringWarning, _span())
                    warn("text", LoweringWarning, _span(line=8))
            assert not caught
        assert [one.lineno for one in caught] == [7, 8]
    assert list(outer) == [Notice("LoweringWarning", "text", "author.py", n) for n in (7, 8)]


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_filter_makes_an_error_of_it_behind_a_pass_of_tvm(category):
    @tvm.transform.module_pass(opt_level=0)
    def quiet(mod, _):
        warn("from a pass", category)
        return mod

    with warnings.catch_warnings():
        warnings.simplefilter("error", WarploomWarning)
        with pytest.raises(category, match=r"^from a pass$"), deferred():
            quiet(tvm.IRModule({}))
        with pytest.raises(category, match="from a pass"):
            quiet(tvm.IRModule({}))


def test_an_error_is_not_hidden_by_a_warning_that_is_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error", WarploomWarning)
        with pytest.raises(KeyError), deferred():
            warn("text", LoweringWarning)
            raise KeyError("first")
    with pytest.warns(LoweringWarning), pytest.raises(KeyError), deferred():
        warn("text", LoweringWarning)
        raise KeyError("first")


def test_a_search_is_silent_and_refuses_what_it_names(recwarn):
    with silenced(StockScheduleWarning):
        warn("text", LoweringWarning)
        with pytest.raises(StockScheduleWarning, match="stock"):
            warn("stock", StockScheduleWarning)
    with silenced():
        warn("stock", StockScheduleWarning)
    assert not recwarn.list


def test_threads_do_not_take_each_others_warnings():
    inside, outside = threading.Event(), threading.Event()
    found = {}

    def other():
        with silenced():
            inside.wait(10)
            with deferred() as notices:
                warn("other", LoweringWarning)
            found["other"] = list(notices)
        outside.set()

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.warns(LoweringWarning, match="mine"), deferred() as notices:
        inside.set()
        assert outside.wait(10)
        warn("mine", LoweringWarning)
    thread.join()
    assert [one.text for one in notices] == ["mine"] and not found["other"]
