"""Hooks: what lower parts of the package ask of the plugin."""

from __future__ import annotations

import pytest
import tvm

from warploom import hooks, plugin
from warploom.meta_schedule.programs import search
from warploom.runtime import driver


def test_a_hook_that_nobody_provides_says_what_to_import():
    with pytest.raises(RuntimeError, match=r"^To fly, import warploom\.plugin first\.$"):
        hooks.Hook("fly")()


def test_a_hook_runs_what_was_provided_last():
    hook = hooks.Hook[int]("count")
    hook.provide(lambda: 1)
    assert hook() == 1
    hook.provide(lambda: 2)
    assert hook() == 2


def test_the_plugin_provides_every_hook():
    assert isinstance(hooks.cuda_runtime(), driver.CudaRuntime)
    assert hooks.cuda_runtime() is plugin.cuda_runtime(), "registered once"
    hooks.register_relax_operators()
    assert tvm.ir.Op.get("warploom.attention").name == "warploom.attention"
    assert hooks.tuner() is search.find
    names = [name for name, value in vars(hooks).items() if isinstance(value, hooks.Hook)]
    assert sorted(names) == ["cuda_runtime", "register_relax_operators", "tuner"]
