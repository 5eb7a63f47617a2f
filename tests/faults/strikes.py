"""What each fault of the matrix is: what is set before the ranks start, and what is done to them at the moment."""

import contextlib
import resource
import signal
import threading
import time

import box

VICTIM = 1


class Fault:
    """A fault that does nothing. Its functions are called in their order."""

    settings = {}
    victim = VICTIM
    file_store = False
    limited = False  # the victim ends after its first error, and the others go on without it

    @staticmethod
    def why_not():
        """Which capability is missing, or ""."""
        return ""

    def around(self, _folder):
        """A context manager in which the job runs."""
        return contextlib.nullcontext()

    def machines(self):
        return {}

    def before(self, _job):
        """Is called at start-up, before the ranks begin; strike() follows a little later."""

    def strike(self, _job):
        pass

    def over(self, _job):
        """Is called when the others have noticed it, or some time later if they are not to notice it."""


class Killed(Fault):
    def strike(self, job):
        job.ranks[self.victim].signal(signal.SIGKILL)


class KilledFirst(Killed):
    victim, file_store = 0, True


class Frozen(Fault):
    def strike(self, job):
        job.ranks[self.victim].signal(signal.SIGSTOP)

    def over(self, job):
        job.ranks[self.victim].signal(signal.SIGCONT)


class Slow(Fault):
    def strike(self, job):
        victim, self._stop = job.ranks[self.victim], threading.Event()

        def stutter():
            while not self._stop.is_set():
                victim.signal(signal.SIGSTOP)
                time.sleep(0.03)
                victim.signal(signal.SIGCONT)
                time.sleep(0.01)

        self._thread = threading.Thread(target=stutter)
        self._thread.start()

    def over(self, job):
        self._stop.set()
        self._thread.join()
        job.ranks[self.victim].signal(signal.SIGCONT)


class OnCable(Fault):
    settings = {"MASTER_ADDR": "10.78.0.1", "TUTTI_SECRET": "what this test's ranks know"}
    why_not = staticmethod(box.Cable.why_not)

    def around(self, _folder):
        self.cable = box.Cable()
        return self.cable

    def machines(self):
        return {rank: "b" if rank == VICTIM else "a" for rank in range(8)}


class Cut(OnCable):
    def strike(self, _job):
        self.cable.lose(1.0)

    def over(self, _job):
        self.cable.lose(0.0)


class Lossy(OnCable):
    def strike(self, _job):
        self.cable.lose(0.02)


class Damage(Fault):
    file_store = flips = True
    settings = {"TUTTI_CHECKSUM": "yes", "WORKER_DAMAGE": "later"}

    def strike(self, job):
        job.ranks[VICTIM].tell("flip")


class DamagedHello(Damage):
    flips = False
    settings = {"TUTTI_CHECKSUM": "yes", "WORKER_DAMAGE": "hello"}


class OtherVersion(Damage):
    flips = False
    settings = {"WORKER_DAMAGE": "version"}

    def strike(self, _job):
        pass


class FullDisk(Fault):
    def around(self, folder):
        self.disk = box.SmallDisk(self.place(folder), 256)
        return self.disk

    def place(self, folder):
        return folder / "disk"

    def before(self, job):
        self.strike(job)

    def strike(self, _job):
        self.disk.fill()


class FullShm(FullDisk):
    def place(self, _folder):
        return "/dev/shm"


class FullStore(FullDisk):
    file_store = "disk/store"


class FullTraces(FullDisk):
    def __init__(self):
        self.settings = {"TUTTI_TRACE_DIR": "disk"}

    def strike(self, job):
        super().strike(job)
        job.ranks[VICTIM].signal(signal.SIGKILL)


class Limited(Fault):
    limited = True

    def before(self, job):
        self.limit(job.ranks[VICTIM], True)

    def strike(self, job):
        with contextlib.suppress(OSError):  # it has ended, because of what was done before it began
            self.limit(job.ranks[VICTIM], False)


class AddressSpace(Limited):
    def limit(self, rank, at_start):
        if not at_start or not hasattr(self, "done"):
            rank.limit(resource.RLIMIT_AS, rank.address_space() + (1 << 20 if at_start else 0))
        self.done = True


class Descriptors(Limited):
    def limit(self, rank, at_start):
        if not at_start or not hasattr(self, "done"):
            rank.limit(resource.RLIMIT_NOFILE, rank.descriptors() + (2 if at_start else 0))
        self.done = True


class InGroup(Limited):
    controller = ""

    @classmethod
    def why_not(cls):
        return box.Group.why_not(cls.controller)

    def around(self, _folder):
        self.group = box.Group(self.controller)
        return self.group


class GroupMemory(InGroup):
    controller = "memory"

    def limit(self, rank, at_start):
        if at_start:
            self.group.take(rank.process.pid, "memory.limit_in_bytes", 256 << 10)


class Threads(InGroup):
    controller = "pids"

    def limit(self, rank, at_start):
        if at_start or rank.status() is None:
            self.group.take(rank.process.pid, "pids.max", rank.threads())


class Scanned(Fault):
    def around(self, _folder):
        self.scanner = box.Scanner()
        return self.scanner


FAULTS = {
    "killed": Killed,
    "killed: rank 0 of a file store": KilledFirst,
    "frozen": Frozen,
    "slow": Slow,
    "cable cut": Cut,
    "cable loses 2 %": Lossy,
    "a bit changes": Damage,
    "a bit of a greeting changes": DamagedHello,
    "other version of tutti": OtherVersion,
    "/dev/shm full": FullShm,
    "disk of the store full": FullStore,
    "disk of the traces full": FullTraces,
    "memory (RLIMIT_AS)": AddressSpace,
    "memory (control group)": GroupMemory,
    "descriptors": Descriptors,
    "threads": Threads,
    "port scanner": Scanned,
}
