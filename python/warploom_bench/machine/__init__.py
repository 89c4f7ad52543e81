"""``warploom bench machine``: what the hardware does, each number by a kernel of its own.

A *probe* is a kernel that does one thing between two reads of the clock. A *measurement* runs
probes and gives readings: a value with its unit and spread. ``constants.py`` says which constants
of the cost model follow from which readings.

=================== ==============================================================================
``probe.py``        probes: CUDA source in a TIRx kernel
``device_code.py``  what the sources of all probes share
``device.py``       the GPU and its memory
``rig.py``          launches and samples on one GPU
``measurement.py``  measurements and readings
others              one kind of measurement each; ``table.py`` lists them
``bounds.py``       what a reading can be on any Hopper
``constants.py``    readings -> constants of ``Machine``
``report.py``       the JSON file of a GPU, and the table for people
``command.py``      the command
=================== ==============================================================================

Bodies of probes are CUDA and not tile programs: neither passes nor a code generator may come
between two reads of the clock. TVM compiles and launches them, with tensor maps, clusters and
programmatic launches as it does for all kernels of warploom, so that they run wherever those do: on
the emulator, where every access is checked and times mean nothing, and from a folder of compiled
kernels on a machine without TVM.
"""
