"""Texts of ``wl.print``: ``{}`` for each value, as ``str.format`` has them, printed by dtype.

A place is one conversion of C's printf, which GPUs have. The same text is made in two ways:
:func:`c_format` is the format for printf in a kernel, and :func:`formatted` the printed text.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warploom.errors import IllegalCombination

#: CUDA C++ Programming Guide, "Formatted Output", "Limitations".
MOST_VALUES = 32

_SPEC = re.compile(
    r"(?P<align>[<>]?)(?P<sign>[-+ ]?)(?P<alternate>#?)(?P<zero>0?)"
    r"(?P<width>[0-9]{0,3})(?:\.(?P<precision>[0-9]{1,2}))?(?P<letter>[a-zA-Z]?)"
)


@dataclass(frozen=True)
class Kind:
    """Dtypes that are printed alike.

    Attributes
    ----------
    description : str
        For messages.
    letters : str
        Letters that a place may have; the first is that of a place without.
    """

    description: str
    letters: str


BOOL = Kind("a bool", "d")
SIGNED = Kind("an integer", "dxX")
UNSIGNED = Kind("an unsigned integer", "dxX")
FLOAT = Kind("a float", "geEfFG")
POINTER = Kind("a pointer", "")


def kind_of(dtype: str) -> Kind | None:
    """How values of a dtype are printed; None for vectors and for dtypes without numbers."""
    if "x" in dtype:
        return None
    if dtype == "handle":
        return POINTER
    if dtype == "bool":
        return BOOL
    if dtype.startswith("uint"):
        return UNSIGNED
    if dtype.startswith("int"):
        return SIGNED
    return FLOAT if dtype.startswith(("float", "bfloat")) else None


@dataclass(frozen=True)
class Place:
    """A ``{}`` of a text: ``{[<>][+ ][#][0][width][.precision][letter]}``.

    Attributes
    ----------
    left, zero, alternate : bool
        The flags ``-``, ``0`` and ``#`` of printf.
    sign : str
        ``"+"``, ``" "`` or nothing.
    width, precision : str
        Digits, or nothing.
    letter : str
        ``d``, ``x``, ``X``, ``e``, ``E``, ``f``, ``F``, ``g``, ``G``; empty for that of the dtype.
    """

    left: bool = False
    sign: str = ""
    alternate: bool = False
    zero: bool = False
    width: str = ""
    precision: str = ""
    letter: str = ""

    @classmethod
    def parse(cls, spec: str) -> Place:
        """The format behind the colon.

        Raises
        ------
        IllegalCombination
            If printf has nothing for it.
        """
        match = _SPEC.fullmatch(spec)
        if match is None or (match["zero"] and (match["align"] or not match["width"])):
            raise IllegalCombination(
                f"{{:{spec}}} is no place of wl.print; allowed are a side < or >, a sign + or "
                "blank, #, 0, a width, a precision and a letter, such as {:>8.3f} or {:#06x}; "
                "0 takes a width, and no side."
            )
        return cls(
            match["align"] == "<", match["sign"].strip("-"), bool(match["alternate"]),
            bool(match["zero"]), match["width"], match["precision"] or "", match["letter"],
        )  # fmt: skip

    def check(self, number: int, kind: Kind) -> None:
        """Refuse what values of this kind are not printed as.

        Raises
        ------
        IllegalCombination
            If the letter, the sign or the precision is not theirs.
        """
        wrong = ""
        if self.letter and self.letter not in kind.letters:
            wrong = f"the letter {self.letter!r}"
        elif self.precision and kind is not FLOAT:
            wrong = "a precision"
        elif self.sign and (kind in (BOOL, POINTER, UNSIGNED) or self.letter in ("x", "X")):
            wrong = "a sign"
        elif self.alternate and kind is not FLOAT and self.letter not in ("x", "X"):
            wrong = "the flag #"
        elif self.zero and kind is POINTER:
            wrong = "the flag 0"
        if wrong:
            letters = ", ".join(kind.letters) or "no letter"
            raise IllegalCombination(
                f"the place of value {number} has {wrong}, and the value is {kind.description}; "
                f"allowed are {letters}; precisions are for floats, signs for signed numbers, and "
                "# for x, X and floats."
            )

    def letter_of(self, kind: Kind) -> str:
        """The letter of the dtype, where the place has none."""
        return self.letter or kind.letters[:1]


@dataclass(frozen=True)
class Format:
    """A text and its places, one after the other.

    Attributes
    ----------
    texts : tuple of str
        The text before each place, and behind the last.
    sources : tuple of str
        The format behind the colon of each place.
    """

    texts: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def places(self) -> list[Place]:
        """Its places, which are those of numbers.

        Raises
        ------
        IllegalCombination
            If printf has nothing for one.
        """
        return [Place.parse(source) for source in self.sources]

    @classmethod
    def parse(cls, text: str) -> Format:
        """Take ``"row {}: {:.3f}"`` apart; ``{{`` and ``}}`` are braces.

        Raises
        ------
        IllegalCombination
            If braces do not match, or a place has a name, a number or a conversion.
        """
        texts, sources = [""], []
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise IllegalCombination(
                f"the text {text!r} of wl.print is wrong: {error}; write {{{{ and }}}} for braces."
            ) from None
        for before, name, spec, conversion in parts:
            texts[-1] += before
            if name is None:
                continue
            if name or conversion:
                raise IllegalCombination(
                    f"the text {text!r} has the place {{{name}{'!' if conversion else ''}"
                    f"{conversion or ''}}}; places of wl.print are {{}} or {{:...}}, and take the "
                    "values one after the other."
                )
            sources.append(spec or "")
            texts.append("")
        return cls(tuple(texts), tuple(sources))


def c_format(form: Format, kinds: Sequence[tuple[Kind, int]]) -> str:
    """The format for printf; ``kinds`` has the kind and the bits of each value."""
    result = form.texts[0].replace("%", "%%")
    for place, (kind, bits), text in zip(form.places, kinds, form.texts[1:], strict=True):
        flags = "-" * place.left + place.sign + "#" * place.alternate + "0" * place.zero
        precision = f".{place.precision}" if place.precision else ""
        letter = "p" if kind is POINTER else place.letter_of(kind)
        if letter == "d" and kind is UNSIGNED:
            letter = "u"
        long = "ll" * (kind in (SIGNED, UNSIGNED) and bits == 64)
        result += f"%{flags}{place.width}{precision}{long}{letter}" + text.replace("%", "%%")
    return result


def formatted(form: Format, values: Sequence[tuple[Kind, int, Any]]) -> str:
    """The text that printf makes of values; each has its kind, its bits, and a number of Python."""
    result = form.texts[0]
    for place, (kind, bits, value), text in zip(form.places, values, form.texts[1:], strict=True):
        result += _converted(place, kind, bits, value) + text
    return result


def _converted(place: Place, kind: Kind, bits: int, value: Any) -> str:
    letter, zero, alternate = place.letter_of(kind), place.zero, place.alternate
    if kind is FLOAT:
        # printf pads values without digits with blanks; a NaN has no sign here.
        zero = zero and math.isfinite(value)
        value = math.nan if math.isnan(value) else value
    elif letter in ("x", "X"):
        value &= (1 << bits) - 1
        alternate = alternate and value != 0
    flags = "-" * place.left + place.sign + "#" * alternate + "0" * zero
    precision = f".{place.precision}" if place.precision else ""
    return f"%{flags}{place.width}{precision}{letter}" % value
