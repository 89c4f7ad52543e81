"""The table of choices: every row is drawn, recorded, read back, hinted and documented."""

from __future__ import annotations

import dataclasses
import inspect
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shared.paths import ROOT
from warploom import language as wl
from warploom.decide import Config, plain_gemm, predict, ranked
from warploom.decide.draws import draws, starts
from warploom.decide.families.prefill import PrefillProblem, choose_prefill
from warploom.decide.inspect import main, markdown
from warploom.decide.machines import machine_of
from warploom.errors import IllegalCombination
from warploom.target.gpus import GPUS
from warploom.tile.choices import BY_NAME, CHOICES, EXCLUSIONS, ROWS, Count, Flag, Word
from warploom.tile.hints import HINTS

PROBLEM = plain_gemm(1024, 1024, 4096)


def test_rows_are_sound():
    assert len(BY_NAME) == len(CHOICES)
    for row in CHOICES:
        assert row.sentence.endswith(".") and isinstance(row.kind, Flag | Count | Word)
        assert row.default is not None or row.hint is not None, "a choice that nobody can make"
        for value in (row.default, *row.draws):
            assert value is None or row.kind.why_not(value) is None, (row.name, value)
        assert len(set(row.draws)) == len(row.draws)
        assert not row.draws or row.default in row.draws
        assert row.priced or row.rule, "a choice that nothing decides"
        assert not row.rule or row.rule.endswith(".")


def test_exclusions_name_choices_and_values_that_exist():
    for rule in EXCLUSIONS:
        for name, values in {rule.name: rule.values, **rule.allowed}.items():
            assert all(BY_NAME[name].kind.why_not(value) is None for value in values)


@pytest.mark.parametrize("row", CHOICES, ids=lambda row: row.name)
def test_values_are_integers_in_records(row):
    for value in (*row.kind.all, *row.draws):
        number = row.kind.number(value)
        assert type(number) is int and 0 <= number < 2**31, "TVM samples 32-bit integers"
        assert row.kind.value(number) == value


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_drawn_value_is_a_config_and_comes_back(row):
    for value in row.draws:
        config = Config(**{row.name: value})
        assert Config.of(config.values()) == config
        assert config.changed() == ({} if value == row.default else {row.name: value})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_choice_of_a_search_is_in_the_space(row):
    allowed = draws(PROBLEM)
    assert (row.name in allowed.values) == bool(row.draws or row.name.startswith("tile_"))


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.draws and not row.priced], ids=lambda row: row.name
)
def test_what_is_not_priced_does_not_change_the_prediction(row):
    for _, config in ranked(PROBLEM, 8):
        for value in row.draws:
            other = dataclasses.replace(config, **{row.name: value})
            if other.why_not(PROBLEM) is None:
                assert predict(PROBLEM, other).total == predict(PROBLEM, config).total


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.draws and row.priced], ids=lambda row: row.name
)
def test_what_is_priced_changes_some_prediction(row):
    few = plain_gemm(8, 4096, 16384)
    weights = dataclasses.replace(few, b_bits=4.125, computed=(False, True))
    found = (
        (problem, config, dataclasses.replace(config, **{row.name: value}))
        for problem in (PROBLEM, few, weights, plain_gemm(8192, 8192, 8192))
        for _, config in ranked(problem, 64)
        for value in row.draws
    )
    assert any(
        predict(problem, config).total != predict(problem, other).total
        for problem, config, other in found
        if config != other and other.why_not(problem) is None
    )


def test_hints_are_rows():
    assert [*inspect.signature(wl.hints).parameters] == [*HINTS]
    assert {row.name for rows in HINTS.values() for row in rows} == {
        row.name for row in CHOICES if row.hint
    }


@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({}, optional={
    row.name: st.sampled_from(row.draws) for row in ROWS if row.draws
}))  # fmt: skip
def test_any_draw_has_a_reason_or_hints_that_are_accepted(chosen):
    config = Config(64, 64, 64, **{"stages": 3, "consumers": 1, **chosen})
    if config.why_not(PROBLEM) is None:
        wl.hints(**config.hints())


@settings(max_examples=100, deadline=None)
@given(st.fixed_dictionaries({row.name: st.sampled_from(row.draws) for row in ROWS if row.draws}))
def test_any_draw_becomes_a_legal_config_and_a_legal_config_stays(chosen):
    allowed = draws(PROBLEM)
    legal = allowed.legal(Config(128, 128, 64, **chosen))
    assert legal is not None and legal.why_not(PROBLEM) is None
    assert allowed.legal(legal) == legal


def test_exclusions_are_refused_by_hints_and_configs_alike():
    config = Config(64, 64, 64, stages=3, consumers=1)
    checked = 0
    for rule in EXCLUSIONS:
        rows = [BY_NAME[name] for name in (rule.name, *rule.allowed)]
        if any(row.default is None or row.hint is None for row in rows):
            continue
        for name, allowed in rule.allowed.items():
            row = BY_NAME[name]
            wrong = [value for value in (*row.kind.all, *row.draws) if value not in allowed]
            for value, other in itertools.product(rule.values, wrong):
                changed = dataclasses.replace(config, **{rule.name: value, name: other})
                assert rule.because in rule.why_not(vars(changed))
                assert changed.why_not(PROBLEM) is not None
                with pytest.raises(IllegalCombination):
                    wl.hints(**{n: v for n, v in changed.hints().items() if v is not None})
                checked += 1
    assert checked > 10


def test_the_page_of_the_guide_is_the_table():
    page = (ROOT / "tutorials" / "guide" / "choices.md").read_text(encoding="utf-8")
    assert page.endswith(markdown()), "warploom inspect choices --markdown prints the new table"


def test_the_command(capsys):
    assert main(["--markdown"]) == 0 and capsys.readouterr().out == markdown()
    assert main([]) == 0 and "swap_ab" in capsys.readouterr().out


@pytest.mark.parametrize("number", range(4))
def test_a_search_begins_with_what_the_model_likes_best(rng, number):
    """All choices of the best candidate can be drawn, however many stages fit."""
    m, n, k = (int(8 * 2 ** rng.uniform(0, 9)) // 8 * 8 for _ in range(3))
    problem = plain_gemm(m, n, k)
    _, best = ranked(problem)[0]
    print(problem, best)
    assert draws(problem).has(best) and starts(problem, 1) == [best]


@pytest.mark.parametrize("gpu", ["h200", "h100", "h20", "h100-1g"])
@pytest.mark.parametrize("page_size", [None, 8, 16, 64, 256])
def test_warpgroups_share_the_keys_of_a_prefill_tile_evenly(gpu, page_size):
    for elements, heads, kv_heads in itertools.product((8, 64, 96, 128, 256), (8, 28), (4,)):
        problem = PrefillProblem(heads, kv_heads, elements, elements, page_size=page_size)
        config = choose_prefill(problem, machine_of(GPUS[gpu]))
        assert config.tile_n % (config.tile_m // 64) == 0, (problem, config)
