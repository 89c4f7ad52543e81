"""Tuned tile programs: :func:`warploom.autotune`.

:mod:`space` has the configs of a factory, :mod:`task` is the search for one key of a factory,
:mod:`kernel` and :mod:`factory` are what the decorator returns, and :mod:`decorator` is that. The
search itself is :mod:`warploom.meta_schedule.programs`, which the plugin provides
(:data:`warploom.hooks.tuner`).
"""
