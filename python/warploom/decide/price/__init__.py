"""What kernels cost: a description of their work, a model of an SM, and who describes.

:mod:`~warploom.decide.price.work` is the description, :mod:`~warploom.decide.price.model` prices
it. :mod:`~warploom.decide.price.gemm` describes a GEMM with a config, by formulas, and
:mod:`~warploom.decide.price.read` any tile program, by its statements; tests hold that both say the
same of a GEMM's tile program.
"""
