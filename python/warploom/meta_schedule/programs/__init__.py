"""MetaSchedule for tile programs of users: what :func:`warploom.autotune` searches with.

MetaSchedule tunes functions in S-TIR. A factory is none, so that :mod:`workload` makes a function
that stands for it, whose trace draws its parameters. :mod:`candidates` are the configs with their
programs, :mod:`strategy` proposes them, :mod:`builder` compiles them, :mod:`right` computes the
right results, :mod:`records` finds what was measured, and :mod:`search` puts them together.
Processes, measurements, the journal and databases are those of :mod:`warploom.meta_schedule`.
"""
