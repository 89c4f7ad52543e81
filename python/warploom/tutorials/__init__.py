"""What tutorials share: running their kernels, and making notebooks of them."""

from warploom.tutorials.check import check_assembled, check_product

__all__ = ["check_assembled", "check_product"]
