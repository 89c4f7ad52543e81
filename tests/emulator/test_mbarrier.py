"""The state of an mbarrier against a model in plain integers, over random sequences of steps."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.emulator.native import emulator_function

LIMIT = (1 << 20) - 1


def step(operation, state=0, argument=0):
    return emulator_function("mbarrier_step")(operation, state, argument)


def done(state, parity):
    return emulator_function("mbarrier_done")(state, parity)


@dataclass(frozen=True)
class Model:
    """An mbarrier as PTX describes it; ``None`` from a step means that it is not allowed."""

    expected: int
    pending: int
    tx: int = 0
    phase: int = 0

    def _advance(self):
        if self.pending or self.tx:
            return self
        return replace(self, pending=self.expected, phase=self.phase + 1)

    def arrive(self, count):
        if not 1 <= count <= self.pending:
            return None
        return replace(self, pending=self.pending - count)._advance()

    def arrive_no_complete(self, count):
        after = self.arrive(count)
        return None if after is None or after.phase != self.phase else after

    def arrive_drop(self, count):
        if not 1 <= count <= self.pending:
            return None
        pending, expected = self.pending - count, self.expected - count
        return replace(self, pending=pending, expected=expected)._advance()

    def _add(self, size):
        if abs(self.tx + size) > LIMIT:
            return None
        return replace(self, tx=self.tx + size)._advance()

    def expect_tx(self, size):
        return self._add(size)

    def complete_tx(self, size):
        return self._add(-size)

    def text(self):
        return (
            f"phase parity {self.phase % 2}, {self.pending} of {self.expected} arrivals and "
            f"{self.tx} bytes pending"
        )


COUNTS = st.integers(0, 6)
BYTES = st.one_of(st.integers(0, 64), st.sampled_from((LIMIT - 1, LIMIT, LIMIT + 1)))
STEPS = st.one_of(
    st.tuples(st.sampled_from(("arrive", "arrive_no_complete", "arrive_drop")), COUNTS),
    st.tuples(st.sampled_from(("expect_tx", "complete_tx")), BYTES),
)


@given(count=st.integers(1, 6), steps=st.lists(STEPS, max_size=40))
def test_every_step_is_that_of_the_model(count, steps):
    state, model = step("init", 0, count), Model(count, count)
    for operation, argument in steps:
        after = getattr(model, operation)(argument)
        if after is None:
            with pytest.raises(ValueError, match=rf"^mbarrier\.{operation.split('_')[0]}"):
                step(operation, state, argument)
            continue
        token, state = state, step(operation, state, argument)
        changed = after.phase != model.phase
        assert emulator_function("mbarrier_done_since")(state, token) == changed
        model = after
        assert emulator_function("mbarrier_text")(state) == model.text()
        current = model.phase % 2 == 1
        assert done(state, not current) and not done(state, current)


@pytest.mark.parametrize("count", [1, 2, 128, LIMIT])
def test_a_fresh_barrier_is_in_phase_0(count):
    state = step("init", 12345, count)
    assert not done(state, False) and done(state, True)
    assert emulator_function("mbarrier_text")(state) == Model(count, count).text()


def test_bytes_that_come_before_their_announcement():
    state = step("init", 0, 1)
    state = step("complete_tx", state, 4096)
    assert not done(state, False)
    state = step("expect_tx", state, 4096)
    assert not done(state, False)
    assert done(step("arrive", state, 1), False)


def test_the_last_arrival_waits_for_the_bytes():
    state = step("arrive", step("expect_tx", step("init", 0, 1), 100), 1)
    assert not done(step("complete_tx", state, 99), False)
    assert done(step("complete_tx", state, 100), False)


@pytest.mark.parametrize("count", [0, LIMIT + 1])
def test_counts_that_no_barrier_has(count):
    with pytest.raises(ValueError, match=f"init with count {count}: allowed are 1 to {LIMIT}"):
        step("init", 0, count)


@pytest.mark.parametrize(
    "operation",
    ["inval", "arrive", "arrive_no_complete", "arrive_drop", "expect_tx", "complete_tx"],
)
@pytest.mark.parametrize("memory", [0, -1, int.from_bytes([0xCD] * 8, "little", signed=True), 17])
def test_memory_that_holds_no_barrier(operation, memory):
    with pytest.raises(ValueError, match="holds no mbarrier: it was never initialised"):
        step(operation, memory, 1)
    with pytest.raises(ValueError, match=r"test_wait on memory that holds no mbarrier"):
        done(memory, True)
    assert emulator_function("mbarrier_text")(memory) == "no mbarrier"


def test_an_invalidated_barrier_is_none():
    state = step("inval", step("init", 0, 4))
    with pytest.raises(ValueError, match="holds no mbarrier"):
        step("arrive", state, 1)


def test_one_arrival_too_many_is_named():
    state = step("arrive", step("expect_tx", step("init", 0, 2), 8), 2)
    with pytest.raises(ValueError, match="count 1, but 0 of 2 arrivals are pending"):
        step("arrive", state, 1)
