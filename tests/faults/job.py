"""Ranks as processes (worker.cpp), what they say, and what is done to them."""

import os
import pathlib
import re
import resource
import signal
import subprocess
import threading
import time

PATIENCE_S = 60  # for anything that a worker is to say; the tests of time are in the table


class Rank:
    def __init__(self, program, number, moment, after, environment, machine=None):
        self.number, self.lines = number, []
        self._said = threading.Condition()
        command = [program, str(number), moment, after]
        if machine:
            command = ["ip", "netns", "exec", machine, *command]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, bufsize=1, env=environment, errors="replace")
        self.log = ""
        self._readers = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._read_log, daemon=True)]
        for reader in self._readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._said:
                self.lines.append((time.monotonic(), line.rstrip("\n")))
                self._said.notify_all()
        self.process.wait()
        with self._said:
            self.lines.append((time.monotonic(), f"status {self.process.returncode}"))
            self._said.notify_all()

    def _read_log(self):
        self.log = self.process.stderr.read()

    def wait_for(self, pattern, seconds=PATIENCE_S, first=0):
        """Waits until a line from number `first` on matches, or the rank has ended. Returns the match or None."""
        end = time.monotonic() + seconds
        at = first
        with self._said:
            while True:
                for _, line in self.lines[at:]:
                    at += 1
                    if (match := re.match(pattern, line)):
                        return match
                    if line.startswith("status"):
                        return None
                if not self._said.wait(max(0, end - time.monotonic())) and time.monotonic() >= end:
                    return None

    def all(self, pattern):
        """Returns (time, match) of all lines so far that match."""
        with self._said:
            return [(when, match) for when, line in self.lines if (match := re.match(pattern, line))]

    def tell(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # it has ended

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def status(self):
        """The exit status once it has ended, or None."""
        found = self.all(r"status (-?\d+)")
        return int(found[0][1].group(1)) if found else None

    def limit(self, what, value):
        resource.prlimit(self.process.pid, what, (value, value))

    def descriptors(self):
        numbers = [int(name) for name in os.listdir(f"/proc/{self.process.pid}/fd")]
        if not numbers:
            raise ProcessLookupError("the rank has ended, and nobody has waited for it yet")
        return max(numbers) + 1

    def address_space(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[0]) * resource.getpagesize()

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except OSError:
                pass  # what was not yet written


class Job:
    """All ranks of a job and its newcomers. A context manager: at its end all of them are killed. The rank `ends` ends after
    its first error."""

    _jobs = 0

    def __init__(self, program, folder, size, moment, after, settings, transport, machines=None, ends=None):
        Job._jobs += 1
        self._program, self._moment, self._after = program, moment, after
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
        self._environment = {**kept, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20_000 + Job._jobs % 20_000),
                             "WORLD_SIZE": str(size), "TMPDIR": str(folder), "TUTTI_LOG_LEVEL": "error",
                             "TUTTI_TRANSPORTS": "tcp" if transport == "tls" else transport,
                             "TUTTI_TLS": "yes" if transport == "tls" else "no", **settings}
        self.folder, self.size, self._machines = folder, size, machines or {}
        self.ranks, self.newcomers, self._ends = [], 0, ends

    def __enter__(self):
        for number in range(self.size):
            self.ranks.append(self._start(number, self._moment, {"RANK": str(number), "LOCAL_RANK": str(number)}))
        return self

    def _start(self, number, moment, more):
        after = "end" if number == self._ends else self._after
        return Rank(self._program, number, moment, after, dict(self._environment, **more), self._machines.get(number))

    def newcomer(self, patience_ms="60000"):
        """Starts a process that comes to the job, and returns it."""
        environment = {**self._environment, "WORKER_JOINS": "1", "TUTTI_STARTUP_TIMEOUT_MS": patience_ms}
        if "WORKER_STORE" in environment:
            environment["TUTTI_STORE"] = "file://" + environment["WORKER_STORE"]
        self.newcomers += 1
        number = self.size + self.newcomers - 1
        moment = "mixed" if self._moment == "mixed" else "small"
        rank = Rank(self._program, number, moment, self._after, environment, self._machines.get(number))
        self.ranks.append(rank)
        rank.wait_for("begin")
        rank.tell("go")
        return rank

    def tell(self, command, but=()):
        for rank in self.ranks:
            if rank not in but:
                rank.tell(command)

    def story(self):
        """All that the ranks said, in the order of time."""
        lines = sorted((when, rank.number, line) for rank in self.ranks for when, line in rank.lines)
        begun = lines[0][0] if lines else 0
        text = "".join(f"  {when - begun:8.3f} s rank {number}: {line}\n" for when, number, line in lines)
        return text + "".join(f"  log of rank {rank.number}: {rank.log}\n" for rank in self.ranks if rank.log)

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.signal(signal.SIGCONT)
            rank.close()
