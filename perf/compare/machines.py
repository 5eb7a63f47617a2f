"""Machines in a box: network namespaces that are joined by cables. They are made and removed here."""
import os
import pathlib
import shutil
import subprocess
import tempfile


def _ip(*words):
    """Returns whether `ip` with these words succeeded."""
    return subprocess.run(["ip", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


class Machines:
    """Two machines with a cable (veth) between them, or more machines at a switch (a bridge). Each machine's end is
    called `cable` and has the address that address() returns. A context manager."""

    def __init__(self, count=2, by_turns=False):
        self.count, self.by_turns, self._prefix = count, by_turns, f"tutti-box-{os.getpid()}"
        self._switch = f"{self._prefix}-switch"
        self._shell = None

    @staticmethod
    def why_not():
        """Returns why they cannot be made here, or "" if they can."""
        if os.geteuid() != 0 or not shutil.which("ip"):
            return "network namespaces cannot be made here (root and `ip netns` are needed)"
        name = f"tutti-box-{os.getpid()}-probe"
        made = _ip("netns", "add", name) and _ip("-n", name, "link", "add", "x", "type", "veth", "peer", "name", "y")
        _ip("netns", "del", name)
        return "" if made else "network namespaces and veth pairs cannot be made here"

    def name(self, machine):
        return f"{self._prefix}-{machine}"

    @staticmethod
    def address(machine):
        return f"10.76.0.{machine + 1}"

    def place_of(self, rank, ranks):
        """Returns a rank's machine, and its number among the ranks there."""
        if self.by_turns:
            return rank % self.count, rank // self.count
        each = ranks // self.count
        return rank // each, rank % each

    def on(self, machine, command):
        """Returns the command that runs `command` on that machine."""
        return ["ip", "netns", "exec", self.name(machine), *command]

    def remote_shell(self):
        """Returns a command that replaces ssh: its arguments are a machine's address and the command to run there."""
        if self._shell is None:
            self._shell = tempfile.TemporaryDirectory(prefix="machines-")
            cases = "".join(f"{self.address(machine)}) name={self.name(machine)} ;;\n" for machine in range(self.count))
            path = pathlib.Path(self._shell.name) / "shell"
            path.write_text(f'#!/bin/sh\ncase $1 in\n{cases}*) exit 9 ;;\nesac\nshift\n'
                            'exec ip netns exec "$name" unshare --uts sh -c "hostname $name; $*"\n')
            path.chmod(0o700)
        return pathlib.Path(self._shell.name) / "shell"

    def _make(self):
        made = all([_ip("netns", "add", self.name(machine)) for machine in range(self.count)])
        if self.count == 2:
            made = made and _ip("link", "add", "cable", "netns", self.name(0), "type", "veth", "peer", "name", "cable",
                                "netns", self.name(1))
        else:
            made = made and _ip("netns", "add", self._switch) and \
                _ip("-n", self._switch, "link", "add", "switch", "type", "bridge") and \
                _ip("-n", self._switch, "link", "set", "switch", "up")
            for machine in range(self.count):
                port = f"port{machine}"
                made = made and _ip("link", "add", "cable", "netns", self.name(machine), "type", "veth", "peer", "name",
                                    port, "netns", self._switch) and \
                    _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
        for machine in range(self.count):
            made = made and all(_ip("-n", self.name(machine), *words) for words in (
                ("addr", "add", f"{self.address(machine)}/24", "dev", "cable"),
                ("link", "set", "lo", "up"), ("link", "set", "cable", "up")))
        return made

    def __enter__(self):
        if not self._make():
            self.__exit__()
            raise RuntimeError(self.why_not() or "the machines' namespaces could not be made")
        return self

    def __exit__(self, *_):
        if self._shell is not None:
            self._shell.cleanup()
        for machine in range(self.count):
            _ip("netns", "del", self.name(machine))
        if self.count != 2:
            _ip("netns", "del", self._switch)

    def impair(self, netem):
        """Impairs both directions with the words of `tc qdisc … netem`."""
        for machine in range(self.count):
            subprocess.run(["tc", "-n", self.name(machine), "qdisc", "add", "dev", "cable", "root", "netem",
                            *netem.split()], check=True)
