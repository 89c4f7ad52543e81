"""Op schedules: how tile primitives become instructions of the asynchronous tensor cores.

Every module has a table ``SCHEDULES: tuple[Schedule, ...]``; :mod:`warploom.plugin` registers it.
"""
