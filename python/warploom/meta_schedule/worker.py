"""The process behind :class:`warploom.meta_schedule.processes.Worker`.

``python -m warploom.meta_schedule.worker SOCKET PARENT``: receives pickled calls and sends back
whether each succeeded, and its value or its exception.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection

import cloudpickle

_PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        sys.exit(1)


def serve(connection: Connection) -> None:
    """Answer calls until the other side closes."""
    while True:
        try:
            request = connection.recv_bytes()
        except EOFError:
            return
        try:
            function, arguments = cloudpickle.loads(request)
            answer = (True, function(*arguments))
        except Exception as error:  # of any kind: the caller decides
            answer = (False, f"{type(error).__name__}: {error}")
        connection.send_bytes(cloudpickle.dumps(answer))


def main() -> None:
    """Import the modules that calls need, report that, and serve."""
    socket, parent = (int(text) for text in sys.argv[1:])
    _die_with(parent)
    from warploom import hooks

    hooks.cuda_runtime()  # registers with TVM before anything is unpickled

    connection = Connection(socket)
    connection.send_bytes(cloudpickle.dumps(True))
    serve(connection)


if __name__ == "__main__":
    main()
