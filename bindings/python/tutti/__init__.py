"""tutti: collective communication on arrays where they lie.

    import numpy, tutti

    comm = tutti.Communicator.from_env()          # started by: python -m tutti.run -n 4 program.py
    gradient = numpy.full(1 << 20, float(comm.rank), numpy.float32)
    comm.all_reduce(gradient, "avg")              # in place
    work = comm.all_reduce_async(gradient)        # returns at once
    work.wait(30)                                 # or: await work

Arrays are whatever has the buffer protocol or DLPack in the host's memory: of NumPy, PyTorch, JAX, array, bytearray.
"""

import asyncio as _asyncio

from ._core import ANY_SOURCE, ANY_TAG, NO_COLOR, Communicator, Group, Work, version
from .errors import (
    CorruptError,
    Error,
    InternalError,
    MismatchError,
    PeerLostError,
    TimeoutError,
    UnavailableError,
    UsageError,
)

__version__ = version()
__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "NO_COLOR",
    "Communicator",
    "CorruptError",
    "Error",
    "Group",
    "InternalError",
    "MismatchError",
    "PeerLostError",
    "TimeoutError",
    "UnavailableError",
    "UsageError",
    "Work",
    "version",
]


def _await_work(self):
    """Waits for the call without holding up the event loop; raises its error."""
    loop = _asyncio.get_running_loop()
    ended = loop.create_future()

    def tell():
        if not ended.done():
            ended.set_result(None)

    def end():
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop was closed: nobody waits any more
            pass

    self._then(end)
    yield from ended
    self.wait()
    return self.received


def _enter(self):
    return self


def _close(self, *_):
    self.close()


def _end_group(self, kind, *_):
    if kind is None:
        self.end()


Work.__await__ = _await_work
Communicator.__enter__, Communicator.__exit__ = _enter, _close
Group.__enter__, Group.__exit__ = _enter, _end_group
