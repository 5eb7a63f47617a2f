"""The matrix as data: which fault, over which transport, at which moment, ends how. matrix.py runs it."""

import dataclasses

SHM, TCP, TLS = "shm", "tcp", "tls"
ALL, SOCKETS = (SHM, TCP, TLS), (TCP, TLS)
MOMENTS = ("start-up", "idle", "small", "large", "split", "shrink", "grow", "close")
RUNNING = ("idle", "small", "large", "split", "shrink", "grow")
STEADY = ("idle", "small", "large", "split")
MAKING = ("shrink", "grow")  # connections are made then

GOES_ON, SHRINKS, EITHER, ENDS = "goes on", "shrinks", "goes on or shrinks", "ends"


@dataclasses.dataclass(frozen=True)
class Row:
    """What happens to the ranks of these cells.

    `others` and `victim` are patterns of the kinds of the first error that each of the other ranks, and rank 1, gets; ""
    means no error, and None that it is not asked for its error. The errors of all other ranks name rank 1, unless
    `named` says that one of them does, because the ranks hear from each other that one has given up. `then` says what
    becomes of the job: all ranks go on, the others go on without rank 1, either of the two (whether a rank needs more of what it lacks is a matter of luck), or
    all end."""
    fault: str
    transports: tuple
    moments: tuple
    others: str
    victim: str | None
    then: str
    named: str = "by all"  # or "by one", or "by none"


ROWS = [
    Row("killed", ALL, ("start-up",), "peer_lost|timeout", None, ENDS),
    Row("killed", ALL, ("idle", "small", "large", *MAKING), "peer_lost", None, SHRINKS),
    Row("killed", ALL, ("split",), "peer_lost", None, SHRINKS, "by one"),
    Row("killed", ALL, ("close",), "", None, ENDS),
    Row("killed: rank 0 of a file store", ALL, ("idle", "small", "large", *MAKING), "peer_lost", None, SHRINKS),
    Row("killed: rank 0 of a file store", ALL, ("split",), "peer_lost", None, SHRINKS, "by one"),
    Row("frozen", ALL, ("start-up",), "timeout", None, ENDS),
    Row("frozen", ALL, ("idle", "small", "large"), "timeout", "timeout|peer_lost", SHRINKS),
    Row("frozen", ALL, ("split",), "timeout|peer_lost", "timeout|peer_lost", SHRINKS, "by one"),
    Row("frozen", ALL, MAKING, "timeout|peer_lost", "timeout|peer_lost", SHRINKS, "by one"),
    Row("frozen", ALL, ("close",), "", "", ENDS),
    Row("slow", ALL, ("start-up", *RUNNING), "", "", GOES_ON),
    Row("slow", ALL, ("close",), "", "", ENDS),
    Row("cable cut", SOCKETS, ("start-up",), "timeout", "timeout|peer_lost", ENDS),
    Row("cable cut", SOCKETS, ("idle", "small", "large"), "timeout", "timeout|peer_lost", SHRINKS),
    Row("cable cut", SOCKETS, ("split",), "timeout|peer_lost", "timeout|peer_lost", SHRINKS, "by one"),
    Row("cable cut", SOCKETS, MAKING, "timeout|peer_lost", "timeout|peer_lost", SHRINKS, "by none"),
    Row("cable cut", SOCKETS, ("close",), "", "", ENDS),
    Row("cable loses 2 %", SOCKETS, ("start-up", *RUNNING), "", "", GOES_ON),
    Row("cable loses 2 %", SOCKETS, ("close",), "", "", ENDS),
    Row("a bit changes", SOCKETS, ("idle", "small", "large"), "corrupt", "corrupt", ENDS),
    Row("a bit changes", SOCKETS, ("split",), "corrupt|peer_lost", "corrupt|peer_lost", ENDS, "by one"),
    Row("a bit changes", SOCKETS, ("close",), "", "", ENDS),
    Row("a bit of a greeting changes", SOCKETS, ("start-up",), "", "", GOES_ON),
    Row("other version of tutti", ALL, ("start-up",), "mismatch", "mismatch", ENDS),
    Row("/dev/shm full", (SHM,), ("start-up", *RUNNING), "", "", GOES_ON),
    Row("/dev/shm full", (SHM,), ("close",), "", "", ENDS),
    Row("disk of the store full", ALL, ("start-up",), "unavailable", "unavailable", ENDS, "by none"),
    Row("disk of the store full", ALL, STEADY, "", "", GOES_ON),
    Row("disk of the store full", ALL, MAKING, "unavailable|peer_lost", "unavailable|peer_lost", ENDS, "by none"),
    Row("disk of the store full", ALL, ("close",), "", "", ENDS),
    Row("disk of the traces full", ALL, ("small",), "peer_lost", None, SHRINKS),
    Row("memory (RLIMIT_AS)", ALL, ("start-up",), "unavailable|peer_lost|timeout", "unavailable", ENDS, "by one"),
    Row("memory (RLIMIT_AS)", ALL, RUNNING, "unavailable|peer_lost|timeout", "unavailable|peer_lost|timeout", EITHER, "by none"),
    Row("memory (RLIMIT_AS)", ALL, ("close",), "", "", ENDS),
    Row("memory (control group)", ALL, ("start-up",), "unavailable|peer_lost|timeout", None, ENDS, "by one"),
    Row("descriptors", ALL, ("start-up",), "unavailable|peer_lost|timeout", "unavailable", ENDS, "by one"),
    Row("descriptors", ALL, STEADY, "", "", GOES_ON),
    Row("descriptors", ALL, MAKING, "unavailable|peer_lost|timeout", "unavailable|peer_lost|timeout", EITHER, "by none"),
    Row("descriptors", ALL, ("close",), "", "", ENDS),
    Row("threads", ALL, ("start-up",), "unavailable|peer_lost|timeout", "unavailable", ENDS, "by one"),
    Row("threads", ALL, STEADY, "", "", GOES_ON),
    Row("threads", ALL, MAKING, "unavailable|peer_lost|timeout", "unavailable|peer_lost|timeout", EITHER, "by none"),
    Row("threads", ALL, ("close",), "", "", ENDS),
    Row("port scanner", ALL, ("start-up", *RUNNING), "", "", GOES_ON),
    Row("port scanner", ALL, ("close",), "", "", ENDS),
]

# Cells that make no sense: (faults that begin so, transports, moments, the reason).
NONE = [
    ("cable", (SHM,), MOMENTS, "there is no cable within a machine"),
    ("killed: rank 0", ALL, ("start-up", "close"), "as rank 1"),
    ("a bit changes", SOCKETS, ("start-up", *MAKING), "as a greeting"),
    ("a bit of a greeting", SOCKETS, MOMENTS[1:], "no greetings"),
    ("other version", ALL, MOMENTS[1:], "compared at the start"),
    ("disk of the traces", ALL, MOMENTS, "nothing is written"),
    ("memory (control", ALL, MOMENTS[1:], "as RLIMIT_AS"),
]


@dataclasses.dataclass(frozen=True)
class Cell:
    row: Row
    transport: str
    moment: str

    @property
    def name(self):
        return f"{self.row.fault} / {self.transport} / {self.moment}"


def cells():
    return [Cell(row, transport, moment) for row in ROWS for transport in row.transports for moment in row.moments]


SLOW = ("cable cut", "memory (control group)")  # the tests run them over one transport
AT_EVERY_MOMENT = ("killed", "frozen")


def part():
    """The cells that the tests run: each fault over each of its transports once, at changing moments, and those of AT_EVERY_MOMENT
    at every moment over some transport."""
    chosen = []
    for place, fault in enumerate(faults()):
        own = [cell for cell in cells() if cell.row.fault == fault]
        transports = list(dict.fromkeys(cell.transport for cell in own))[:1 if fault in SLOW else None]
        moments = list(dict.fromkeys(cell.moment for cell in own))
        for number in range(len(moments) if fault in AT_EVERY_MOMENT else len(transports)):
            wanted = (transports[number % len(transports)], moments[(place + number) % len(moments)])
            chosen += [cell for cell in own if (cell.transport, cell.moment) == wanted]
    return chosen


def faults():
    return list(dict.fromkeys(row.fault for row in ROWS))


def why_not(fault, transport, moment):
    for begin, transports, moments, reason in NONE:
        if fault.startswith(begin) and transport in transports and moment in moments:
            return reason
    return ""
