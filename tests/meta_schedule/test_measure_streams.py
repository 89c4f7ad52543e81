"""Copies of TVM run on the default stream, and kernels on the stream of their place."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import tvm

from warploom.meta_schedule import measure
from warploom.meta_schedule.artifact import Facts


class _Device:
    """A device whose default stream has ended only after it was waited for."""

    def __init__(self) -> None:
        self.pending = False

    def sync(self) -> None:
        self.pending = False


class _Place:
    """A place whose kernels run beside the copies of the default stream."""

    def __init__(self) -> None:
        self.device, self.timer = _Device(), None

    def launching(self) -> contextlib.nullcontext:
        return contextlib.nullcontext()

    def wait(self) -> None:
        """Only the stream of the launches."""


class _Tensor:
    """A tensor whose copies are under way until the device is waited for."""

    def __init__(self, device: _Device, values: np.ndarray) -> None:
        self.device, self.values = device, values

    def copyfrom(self, other: _Tensor) -> _Tensor:
        self.device.pending = True
        self.values = other.values.copy()
        return self

    def numpy(self) -> np.ndarray:
        return self.values


def test_kernel_begins_when_its_poison_is_stored():
    place = _Place()
    right = np.arange(6, dtype="float16")
    checked = _Tensor(place.device, np.zeros_like(right))
    task = SimpleNamespace(
        checked=[checked],
        before={0: _Tensor(place.device, np.full_like(right, np.nan))},
        right={0: right},
    )

    def kernel(out: _Tensor) -> None:
        assert not place.device.pending, "the kernel runs beside the copy that poisons its result"
        out.values = right.copy()

    facts = Facts("0", outputs=(0,), exact=True)
    assert measure._wrong(kernel, facts, task, place) == ""


def test_input_sets_are_there_when_they_are_returned(monkeypatch: pytest.MonkeyPatch):
    place = _Place()

    def tensor(array: np.ndarray, device: _Device) -> _Tensor:
        return _Tensor(device, array)

    def copy(original: _Tensor) -> _Tensor:
        return _Tensor(place.device, np.empty_like(original.values)).copyfrom(original)

    monkeypatch.setattr(tvm.runtime, "tensor", tensor)
    monkeypatch.setattr(measure, "_copy", copy)
    sets = measure._input_sets(Facts("0"), place, (((4, 8), "float16"),))
    assert len(sets) > 1 and not place.device.pending
