"""The errors that warploom raises for bad input, and its warnings.

Every message is one sentence that names the offending value, the rule, and what is allowed.
"""


class WarploomError(ValueError):
    """Base class of all errors that a user of warploom can cause."""


class IllegalCombination(WarploomError):
    """A shape, dtype, major-ness or swizzle that the hardware does not have."""


class ToolchainError(WarploomError, RuntimeError):
    """A compiler, header, library or driver that is missing or of the wrong version."""


class TileProgramError(WarploomError):
    """A statement that is no part of the language of tile programs, or breaks one of its rules."""


class StockScheduleWarning(UserWarning):
    """A product that got TVM's own schedule, for the one that it asked for cannot be followed."""
