"""Machine code that touches registers of MMAs under way."""

from __future__ import annotations

import pytest

from warploom.compiler.hazards import early_accesses
from warploom.compiler.sass_operands import operands

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
    "results that nobody reads": (
        "HGMMA.64x64x16.F32 RZ, gdesc[URZ], RZ, !UPT, gsb0", "FADD R2, R24, R25", _ALL, "EXIT",
    ),
    "more groups may be left than there are": (
        _PRODUCT, "HGMMA.64x16x16.F32 R40, gdesc[UR8], R40, gsb0",
        "WARPGROUP.DEPBAR.LE gsb0, 0x3", "FADD R2, R3, R4", _ALL, "EXIT",
    ),
    "names that look like registers": (_PRODUCT, "CALL.REL `(R24)", "BRA `(.L_R25)", "EXIT"),
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
    "the oldest of more groups than may be left": (
        (_PRODUCT, "HGMMA.64x16x16.F32 R40, gdesc[UR8], R40, gsb0",
         "WARPGROUP.DEPBAR.LE gsb0, 0x3", _PACK, _ALL, "EXIT"), 3,
    ),
    "a global address of 64 bits": (
        (_PRODUCT, "LDG.E R2, desc[UR4][R23.64+-0x10]", _ALL, "EXIT"), 1,
    ),
    "a wide result": ((_PRODUCT, "IMAD.WIDE R23, R2, R3, R4", _ALL, "EXIT"), 1),
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


#: Forms of operands, and the registers that they name.
FORMS = {
    "R{n}": 1, "-R{n}": 1, "|R{n}|": 1, "~R{n}": 1, "R{n}.reuse": 1, "-R{n}.H0_H0": 1,
    "[R{n}]": 1, "[R{n}+0x10]": 1, "[R{n}.X4+UR4]": 1, "[R{n}+URZ+-0x8]": 1, "[R{n}.U32+UR4]": 1,
    "desc[UR4][R{n}.64]": 2, "desc[UR4][R{n}.64+-0x18]": 2, "[R{n}.64+UR6]": 2, "c[0x0][R{n}]": 1,
    "RZ": 0, "-RZ": 0, "[RZ]": 0, "[RZ+UR{n}]": 0, "URZ": 0, "UR{n}": 0, "[UR{n}+0x20]": 0,
    "gdesc[UR{n}]": 0, "gdesc[UR{n}].tnspA.tnspB": 0, "idesc[UR{n}]": 0, "tmem[UR{n}+0x10]": 0,
    "desc[UR{n}]": 0, "P{n}": 0, "!PT": 0, "UP{n}": 0, "!UPT": 0, "PR": 0, "B{n}": 0, "SB0": 0,
    "gsb0": 0, "SRZ": 0, "SR_TID.X": 0, "SR_SWINHI": 0, "c[0x0][0x21{n}]": 0, "0x{n}": 0,
    "+INF": 0, "1.5": 0, "-7.8e-05": 0, "`(.L_x_{n})": 0, "`($_Z{n}R{n})": 0, "0.{n}": 0,
}  # fmt: skip


@pytest.mark.parametrize("opcode", ["MOV", "LDG.E", "ATOMG.E.ADD", "UTMALDG.2D", "LDTM.x16"])
def test_every_form_of_operand_is_understood(opcode: str, rng) -> None:
    for _ in range(200):
        chosen = rng.choice(list(FORMS), rng.integers(1, 6))
        numbers = [int(n) for n in rng.integers(0, 7, len(chosen))]
        text = ", ".join(f.format(n=n) for f, n in zip(chosen, numbers, strict=True))
        found = operands(opcode, text)
        for one, form, n in zip(found, chosen, numbers, strict=True):
            assert one.registers == set(range(n, n + FORMS[form])), text
            assert one.address == ("[" in form)
        assert early_accesses(_listing(f"{opcode} {text}", "EXIT")) == []
        early_accesses(_listing(_PRODUCT, f"{opcode} {text}", "EXIT"))


@pytest.mark.parametrize("result", ["R24", "RZ"])
@pytest.mark.parametrize("a", ["R4", "RZ", "gdesc[UR8]", "gdesc[URZ].tnspA"])
@pytest.mark.parametrize("rest", ["RZ, !UPT", "R24", "R24, UP0", "RZ, !UPT, gsb0", "R24, gsb0"])
def test_every_form_of_mma_is_understood(result: str, a: str, rest: str) -> None:
    b = "" if "desc" in a else "gdesc[UR12], "
    product = f"HGMMA.64x16x16.F32 {result}, {a}, {b}{rest}"
    early = early_accesses(_listing(product, _PACK, "EXIT"))
    assert len(early) == (result == "R24")
    changed = early_accesses(_listing(product, "MOV R6, R2", "EXIT"))
    assert len(changed) == (a == "R4")


def test_kernels_are_told_apart() -> None:
    text = _listing(_PRODUCT, _ALL) + _listing(_PRODUCT, _PACK).replace("text.kernel", "text.other")
    assert [one.kernel for one in early_accesses(text)] == ["other"]
