"""Blocks of groups of a convolution: as many groups at a time as fill the tensor cores.

A group of four channels, as ResNeXt has them, is less than TMA loads and than an MMA contracts.
Several groups together are a convolution of all their channels whose filters are zero between the
groups. That multiplies by zeros, but MMAs and loads of fewer channels would take as long.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.decide.problem import ALIGN
from warploom.relax.convolution import Convolution
from warploom.target.dtypes import bits_of

#: Channels that an MMA of 16 bits contracts, and columns below which MMAs take as long.
_LEAST_CHANNELS, _LEAST_FILTERS = 16, 64
#: Dimensions of an image with groups: TMA loads them beside images, blocks and channels.
MOST_MOVES = 2
#: Products by which a block may exceed another one, for the longer rows that it loads.
_EQUAL = 1.01


@dataclass(frozen=True)
class GroupBlocks:
    """Blocks of a convolution.

    Attributes
    ----------
    count : int
        Blocks.
    groups, channels, filters : int
        Of a block.
    """

    count: int
    groups: int
    channels: int
    filters: int

    @property
    def work(self) -> int:
        """Products of a pixel and a tap, in proportion to the time of their MMAs."""
        wide, deep = max(self.filters, _LEAST_FILTERS), max(self.channels, _LEAST_CHANNELS)
        return self.count * wide * deep


def group_blocks(convolution: Convolution) -> GroupBlocks | None:
    """The blocks of a grouped convolution that take the least time.

    Parameters
    ----------
    convolution : Convolution
        Of several groups, of which each has more than one channel or filter.

    Returns
    -------
    GroupBlocks or None
        None if there are no groups, if each channel has a filter of its own, if rows of no block
        are multiples of 16 bytes, or if TMA takes no such strides or as many dimensions.
    """
    if len(convolution.moves) > MOST_MOVES:
        return None
    groups, unit = convolution.groups, 8 * ALIGN // bits_of(convolution.dtype)
    if groups == 1 or convolution.is_depthwise or convolution.is_gathered:
        return None
    channels, filters = convolution.channels // groups, convolution.filters // groups
    sizes = (size for size in range(1, groups + 1) if groups % size == 0)
    blocks = [
        GroupBlocks(groups // size, size, size * channels, size * filters) for size in sizes
    ]
    blocks = [one for one in blocks if one.channels % unit == 0 and one.filters % unit == 0]
    if not blocks:
        return None
    least = min(one.work for one in blocks)
    return next(one for one in reversed(blocks) if one.work <= least * _EQUAL)
