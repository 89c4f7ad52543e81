"""Machine code that touches registers of products under way."""

from __future__ import annotations

import pytest

from warploom.compiler.hazards import early_accesses

_HEAD = '\t.section\t.text.kernel,"ax",@progbits\nkernel:\n'
_PRODUCT = "HGMMA.64x16x16.F32 R24, gdesc[UR8], R24, gsb0"
_ALL, _BUT_ONE = "WARPGROUP.DEPBAR.LE gsb0, 0x0", "WARPGROUP.DEPBAR.LE gsb0, 0x1"
_PACK = "F2FP.F16.F32.PACK_AB R2, R25, R24"


def _listing(*lines: str) -> str:
    address = 0
    text = _HEAD
    for line in lines:
        if line.startswith("."):
            text += f"{line}:\n"
        else:
            text += f"        /*{address:04x}*/                   {line} ;\n"
            address += 16
    return text


RIGHT = {
    "after the wait": (_PRODUCT, _ALL, _PACK, "EXIT"),
    "other registers": (_PRODUCT, "FADD R23, R22, R32", _ALL, "EXIT"),
    "accumulation": (_PRODUCT, _PRODUCT, _ALL, "EXIT"),
    "the older group": (
        "HGMMA.64x16x16.F32 R40, gdesc[UR8], R40, gsb0", _PRODUCT, _BUT_ONE, "FADD R2, R40, R41",
        _ALL, "EXIT",
    ),
    "another path": (_PRODUCT, "@P0 BRA `(.L_1)", _ALL, _PACK, "EXIT", ".L_1", _ALL, _PACK, "EXIT"),
    "reads of operand A": (
        "HGMMA.64x16x16.F32 R24, R4, gdesc[UR8], R24, gsb0", "FADD R2, R4, R5", _ALL, "EXIT",
    ),
}  # fmt: skip

WRONG = {
    "before the wait": ((_PRODUCT, _PACK, _ALL, "EXIT"), 1),
    "the newest group": ((_PRODUCT, _BUT_ONE, _PACK, _ALL, "EXIT"), 2),
    "an address": ((_PRODUCT, "LDS R2, [R31+0x10]", _ALL, "EXIT"), 1),
    "a wide store": ((_PRODUCT, "STS.128 [R2], R20", "STS.128 [R2], R22", _ALL, "EXIT"), 2),
    "a matrix store": ((_PRODUCT, "STSM.16.M88.4 [R2], R21", _ALL, "EXIT"), 1),
    "without a group": (("HGMMA.64x16x16.F32 R24, gdesc[UR8], R24", _ALL, _PACK, "EXIT"), 2),
    "16-bit results": (
        ("HGMMA.64x16x16.F16 R24, gdesc[UR8], R24, gsb0", "MOV R27, R2", "MOV R28, R2", "EXIT"), 1,
    ),
    "operand A": (
        ("HGMMA.64x16x16.F32 R24, R4, gdesc[UR8], R24, gsb0", "FADD R7, R2, R3", _ALL, "EXIT"), 1,
    ),
    "the next round": (
        (".L_1", "FADD R2, R24, R25", _PRODUCT, "@P0 BRA `(.L_1)", _ALL, "EXIT"), 0,
    ),
    "one path": ((_PRODUCT, "@P0 BRA `(.L_1)", _ALL, ".L_1", _PACK, "EXIT"), 3),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_code(name: str) -> None:
    assert early_accesses(_listing(*RIGHT[name])) == []


@pytest.mark.parametrize("name", WRONG)
def test_wrong_code(name: str) -> None:
    lines, position = WRONG[name]
    (found,) = early_accesses(_listing(*lines))
    assert found.kernel == "kernel"
    assert found.address == 16 * position
    assert "under way" in str(found)


def test_kernels_are_told_apart() -> None:
    text = _listing(_PRODUCT, _ALL) + _listing(_PRODUCT, _PACK).replace("text.kernel", "text.other")
    assert [one.kernel for one in early_accesses(text)] == ["other"]
