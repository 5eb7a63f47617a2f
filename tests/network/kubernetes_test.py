#!/usr/bin/env python3
"""Tests the manifest of docs/launching.md, with pods as machines in a box that have what Kubernetes gives to each pod.

usage: tests/network/kubernetes_test.py <rank>

A pod has its own network, host name and answers of the name server, JOB_COMPLETION_INDEX, and the file of a secret behind
two links.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "watchdog"))
import watched  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "perf" / "compare"))
from machines import Machines  # noqa: E402

RANK = os.path.abspath(sys.argv[1])
IN_POD = 'hostname "$1" && mount --bind hosts /etc/hosts && shift && exec "$@"'


def manifest():
    """Returns the text of the manifest in the page."""
    return re.search(r"```yaml\n(.*?)```", (ROOT / "docs" / "launching.md").read_text(), re.S).group(1)


class Kubernetes(unittest.TestCase):
    def pods(self, machines, folder, text):
        """Yields the command of each pod."""
        command = json.loads(re.search(r"command: (\[.*\])", text).group(1))
        variables = dict(re.findall(r"- \{name: (\w+), value: \"?([^\"}]+)\"?\}", text))
        mounted_at = re.search(r"mountPath: (\S+),", text).group(1)
        variables = {name: value.replace(mounted_at, str(folder / "secret")) for name, value in variables.items()}
        job = re.search(r"kind: Job\nmetadata: \{name: (\w+)\}", text).group(1)
        domain = re.search(r"subdomain: (\w+)", text).group(1)
        names = [f"{job}-{index}" for index in range(machines.count)]
        (folder / "hosts").write_text("".join(f"{machines.address(index)} {name}.{domain} {name}\n"
                                              for index, name in enumerate(names)))
        for index, name in enumerate(names):
            environment = [f"{name}={value}" for name, value in variables.items()]
            yield machines.on(index, ["unshare", "--uts", "--mount", "sh", "-c", IN_POD, "sh", name, "env",
                                      f"JOB_COMPLETION_INDEX={index}", *environment, *command])

    @staticmethod
    def mount_secret(folder):
        """Makes the links that the kubelet makes: the file's name leads to a folder, which is a link to its version."""
        version = folder / "secret" / "..2026_11_21"
        version.mkdir(parents=True)
        (version / "job").write_text("0123456789abcdef" * 4)
        (version / "job").chmod(0o400)
        (folder / "secret" / "..data").symlink_to(version.name)
        (folder / "secret" / "job").symlink_to("..data/job")

    def test_pods_of_the_documented_job_on_four_machines_find_each_other(self):
        if why := Machines.why_not():
            self.skipTest(why)
        text = manifest()
        count = int(re.search(r"completions: (\d+)", text).group(1))
        self.assertIn(f'WORLD_SIZE, value: "{count}"', text)
        with tempfile.TemporaryDirectory() as name, Machines(count) as machines:
            folder = pathlib.Path(name)
            (folder / "program").symlink_to(RANK)
            self.mount_secret(folder)
            pods = [subprocess.Popen(pod, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                    for pod in self.pods(machines, folder, text)]
            try:
                said = [pod.communicate(timeout=100)[0] for pod in pods]
            finally:
                for pod in pods:
                    pod.kill()
        self.assertEqual(said, [f"rank {rank} of 4: sum 10\n" for rank in range(4)])


if __name__ == "__main__":
    watched.main()
