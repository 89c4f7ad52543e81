"""How ``bench judge`` compares a model's choice with the best config of a search.

:mod:`case` says what a search asks of a kernel, :mod:`gemms` are GEMMs, :mod:`search` measures
configs in rounds, :mod:`final` measures the fastest again, :mod:`line` is a line of the output, and
:mod:`verdict` makes tables of lines.
"""
