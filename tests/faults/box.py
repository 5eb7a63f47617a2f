"""A box in which jobs meet their faults: namespaces of its own for processes, network and mounts, so that what a job leaves
behind can be seen, and nothing gets out."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

INSIDE = "TUTTI_TEST_IN_THE_BOX"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
_UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
CLONE_NEWNET = 0x40000000


def run(*words):
    """Returns whether a command succeeded."""
    return subprocess.run([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def why_no_box():
    """Returns which capability is missing for a box, or ""."""
    return "" if run(*_UNSHARE, "true") else "namespaces for processes, network and mounts (unshare, as root)"


def enter():
    """Has this program run again in a box, and returns there alone."""
    if os.environ.get(INSIDE) is None:
        os.environ[INSIDE] = "1"
        os.execvp(_UNSHARE[0], [*_UNSHARE, sys.executable, *map(os.path.abspath, sys.argv[:1]), *sys.argv[1:]])
    run("mount", "-t", "tmpfs", "tutti-box", "/dev/shm")
    run("mount", "-t", "tmpfs", "tutti-box", "/run")
    run("ip", "link", "set", "lo", "up")


def left_behind(folder, allowed):
    """Returns what a job has left: processes, sockets that listen or are connected, shared memory and files."""
    end = time.monotonic() + 10
    while True:
        found = _left(folder, allowed)
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.02)


def _left(folder, allowed):
    found = []
    while True:  # as the first process of the box this one gets the orphans
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        if int(process.name) != os.getpid():
            try:
                found.append("process " + (process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                pass  # it has ended
    for kind in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            if line.split()[3] in ("01", "0A"):
                found.append(f"socket {line.split()[1]}")
    found += [f"socket {line.split()[7]}" for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]
              if len(line.split()) > 7]
    found += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")]
    return found + [f"file {name}" for name in os.listdir(folder) if not re.fullmatch(allowed, name)]


class Group:
    """A control group (version 1) for one process. A context manager."""

    def __init__(self, controller):
        self.path = CGROUPS / controller / f"tutti-faults-{os.getpid()}-{random.getrandbits(40):x}"

    @staticmethod
    def why_not(controller):
        try:
            with Group(controller):
                return ""
        except OSError:
            return f"control groups of {controller} (version 1) that this program may make"

    def take(self, pid, name, limit):
        (self.path / "cgroup.procs").write_text(str(pid))
        (self.path / name).write_text(str(limit))

    def __enter__(self):
        self.path.mkdir()
        return self

    def __exit__(self, *_):
        for _ in range(100):  # until the processes in it have ended
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.02)


class SmallDisk:
    """A file system of a few pages. A context manager."""

    def __init__(self, path, kib):
        self.path, self._kib = pathlib.Path(path), kib

    def __enter__(self):
        self.path.mkdir(exist_ok=True)
        if not run("mount", "-t", "tmpfs", "-o", f"size={self._kib}k", "tutti-box", self.path):
            raise RuntimeError("no small disk")
        return self

    def fill(self):
        with open(self.path / "filler", "ab", buffering=0) as filler:
            try:
                while filler.write(b"x" * 512):
                    pass
            except OSError:
                pass

    def __exit__(self, *_):
        run("umount", "-l", self.path)
        if str(self.path) != "/dev/shm":
            shutil.rmtree(self.path, ignore_errors=True)


class Cable:
    """Two machines (network namespaces) and a cable between them that is a program, which can lose packets or all of
    them. It needs no netem. A context manager."""

    PEERS = ("a", "b")

    def __enter__(self):
        for _ in range(20):  # the devices and namespaces of the last cable go a little after it
            with contextlib.suppress(RuntimeError):
                return self._make()
            time.sleep(0.2)
        return self._make()

    def _make(self):
        for machine in self.PEERS:
            if not run("ip", "netns", "add", machine) or not run("ip", "-n", machine, "link", "set", "lo", "up"):
                raise RuntimeError("no network namespace")
        self._program = subprocess.Popen([sys.executable, __file__, *self.PEERS], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE)
        if self._program.stdout.readline() != b"ready\n":
            self.__exit__()
            raise RuntimeError("no TAP device (/dev/net/tun)")
        for number, machine in enumerate(self.PEERS, 1):
            run("ip", "-n", machine, "addr", "add", f"10.78.0.{number}/24", "dev", "cable")
            run("ip", "-n", machine, "link", "set", "cable", "up")
        return self

    @staticmethod
    def why_not():
        return "" if os.access("/dev/net/tun", os.W_OK) else "TAP devices (/dev/net/tun)"

    def lose(self, share):
        """From now on this share of all packets is lost, in both directions."""
        self._program.stdin.write(struct.pack("d", share))
        self._program.stdin.flush()

    def __exit__(self, *_):
        self._program.kill()
        self._program.wait()
        self._program.stdin.close(), self._program.stdout.close()
        for machine in self.PEERS:
            run("ip", "netns", "del", machine)


def _be_a_cable(machines):
    """Carries packets between the TAP devices `cable` of two network namespaces. A share to lose is read from stdin."""
    libc, ends = ctypes.CDLL(None, use_errno=True), []
    for machine in machines:
        with open(f"/run/netns/{machine}", "rb") as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                return
        ends.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK))
        fcntl.ioctl(ends[-1], 0x400454CA, struct.pack("16sH14x", b"cable", 0x1002))  # TUNSETIFF, IFF_TAP | IFF_NO_PI
    print("ready", flush=True)
    draw, lost = random.Random(1), 0.0
    while True:
        ready, _, _ = select.select([*ends, 0], [], [])
        if 0 in ready:
            share = os.read(0, 8)
            if len(share) < 8:
                return
            lost = struct.unpack("d", share)[0]
        for end in ends:
            if end in ready:
                packet = os.read(end, 70_000)
                if draw.random() >= lost:
                    try:
                        os.write(ends[1 - ends.index(end)], packet)
                    except OSError:
                        pass  # that end is not up, or is full


class Scanner:
    """Connects to every port and named Unix socket of the box at which somebody listens, again and again, and sends what no
    rank would. A context manager."""

    WORDS = [b"", b"GET / HTTP/1.0\r\n\r\n", bytes(range(256)) * 300, b"\0" * 8, b"\xff" * 64]

    def __init__(self):
        self._stop, self.seen = threading.Event(), 0
        self._thread = threading.Thread(target=self._scan)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    @staticmethod
    def _listeners():
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                yield socket.AF_INET, ("127.0.0.1", int(fields[1].rsplit(":", 1)[1], 16))
        for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and int(fields[3], 16) & 0x10000:  # it listens
                yield int(fields[4], 16), fields[7].replace("@", "\0", 1)

    def _scan(self):
        draw, open_ones = random.Random(1), []
        while not self._stop.is_set():
            for family, place in self._listeners():
                try:
                    kind = family if family != socket.AF_INET else socket.SOCK_STREAM
                    one = socket.socket(socket.AF_INET if family == socket.AF_INET else socket.AF_UNIX, kind)
                    one.settimeout(0.2)
                    one.connect(place)
                    self.seen += 1
                    words = draw.choice(self.WORDS)
                    if words:
                        one.send(words, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
                    open_ones.append(one)
                except OSError:
                    one.close()
            while len(open_ones) > 8:  # some stay half open for a while
                open_ones.pop(0).close()
            time.sleep(0.002)
        for one in open_ones:
            one.close()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _be_a_cable(sys.argv[1:3])
