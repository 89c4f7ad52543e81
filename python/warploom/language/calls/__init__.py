"""Tile programs that are called with tensors: :func:`warploom.jit`.

:mod:`arguments` reads tensors of any framework, :mod:`parameters` compares them with the parameters
of a program, :mod:`placement` finds the device and allocates results, :mod:`compiled` compiles and
remembers, and :mod:`kernel` puts them together.
"""
