"""Op schedules: how tile primitives become instructions of the asynchronous tensor cores.

Modules have tuples ``SCHEDULES``; :mod:`warploom.ops.table` names them all for TVM's dispatcher.
"""
