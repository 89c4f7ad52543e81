"""The host asks the device that a launch is for, where a pass could name the first one only.

Tile programs know no devices. Here TVM has made host code that takes the device from the tensors.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import PrimFunc

from warploom.lower.host.kernels import is_host
from warploom.tile.device_question import is_question, of_device

#: The attribute of host code that holds the number of its device.
_DEVICE = "device_id"


def AskOwnDevice() -> tvm.transform.Pass:
    """A pass that lets each host function ask its own device how many SMs it has."""

    @tvm.transform.module_pass(opt_level=0, name="warploom.AskOwnDevice")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        changed = {
            variable: _of_own_device(function) if is_host(function) else function
            for variable, function in mod.functions.items()
        }
        return tvm.IRModule(changed, attrs=mod.attrs)

    return run


def _of_own_device(host: PrimFunc) -> PrimFunc:
    devices: list[Any] = []

    def attribute(node: tirx.AttrStmt) -> None:
        if node.attr_key == _DEVICE:
            devices.append(node.value)

    tvm_ffi.structural_walk(host.body, (tirx.AttrStmt, attribute))
    if not devices:
        return host

    def ask(call: Call) -> Call:
        return of_device(call, devices[0]) if is_question(call) else call

    return host.with_body(tvm_ffi.structural_map(host.body, (Call, ask), order="post"))
