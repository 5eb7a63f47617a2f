"""tutti: collective communication on arrays in place.

    import numpy, tutti

    comm = tutti.Communicator.from_env()          # started by: python -m tutti.run -n 4 program.py
    gradient = numpy.full(1 << 20, float(comm.rank), numpy.float32)
    comm.all_reduce(gradient, "avg")              # in place
    work = comm.all_reduce_async(gradient)        # returns at once
    work.wait(30)                                 # or: await work

An array is any object with the buffer protocol, DLPack or the CUDA array interface: of NumPy, array, bytearray, PyTorch, JAX, CuPy, Numba. Those
on GPUs are used in the order of a stream: comm.all_reduce(array, stream=stream).
"""

from . import schedule
from ._core import (
    ANY_SOURCE,
    ANY_TAG,
    NO_COLOR,
    AlgorithmPrice,
    Buffer,
    Communicator,
    Group,
    Persistent,
    Reduction,
    RegisteredMemory,
    SelectQuery,
    Work,
    launched,
    newcomer,
    version,
)
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
    "AlgorithmPrice",
    "Buffer",
    "NO_COLOR",
    "Communicator",
    "CorruptError",
    "Error",
    "Group",
    "InternalError",
    "MismatchError",
    "PeerLostError",
    "Persistent",
    "Reduction",
    "RegisteredMemory",
    "SelectQuery",
    "TimeoutError",
    "UnavailableError",
    "UsageError",
    "Work",
    "launched",
    "newcomer",
    "schedule",
    "version",
]
