#!/usr/bin/env python3
"""Builds NVIDIA's nccl-tests from their source, and runs them on libnccl.so.2 and the stand-ins for GPUs, checks of the data included.

usage: nccl_tests.py <build folder> <folder of nccl.h> <folder of nccl-tests> [program ...]
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

PROGRAMS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "sendrecv", "hypercube"]
FEW = "-b 8 -e 4K -f 8 -n 1 -w 1 -d all -o all"
MORE = "-b 8 -e 256K -f 8 -n 3 -w 1 -d float -o all -r 1"
# The number of processes (0 is without MPI), options, and variables.
WAYS = [(0, f"-g 1 {FEW}", {}), (0, f"-g 2 -r -1 {FEW}", {}), (0, f"-g 4 -r 2 {FEW}", {}), (0, f"-t 2 -g 2 -r 3 {FEW}", {}), (0, f"-t 4 {FEW}", {}),
        (0, f"-g 2 -G 2 {MORE}", {}), (0, f"-t 4 -G 2 {MORE}", {}), (0, f"-g 2 -m 3 -R 1 {MORE}", {}), (0, f"-t 4 -p 1 -z 1 {MORE}", {}),
        (0, f"-t 4 -y 1 {MORE}", {}), (0, f"-g 4 {MORE}", {"TUTTI_DEVICE": "none"}), (0, f"-t 2 -G 2 {MORE}", {"TUTTI_DEVICE": "none"}),
        (0, f"-t 4 {MORE}", {"NCCL_ALGO": "Tree"}), (2, f"-g 1 {FEW}", {}), (4, f"-G 1 {MORE}", {}), (2, f"-g 2 {MORE}", {"TUTTI_DEVICE": "none"})]
ROW = re.compile(r" +\d+ +\d+ .*?([\w./+-]+) +[\d.]+ +[\d.]+ +[\d.]+ +([\w./+-]+)\s*$")
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def command(*words, **options):
    subprocess.run([str(each) for each in words], check=True, **options)


def mpi_flags(what):
    """Folders that Open MPI's compiler names."""
    return subprocess.run(["mpicc", f"--showme:{what}"], check=True, capture_output=True, text=True).stdout.split()


class Programs:
    def __init__(self, build, header, source):
        self.build, self.header, self.source = build, header, source
        self.folder = build / "nccl-tests"
        self.folder.mkdir(exist_ok=True)
        self.has_mpi = bool(shutil.which("mpicc") and shutil.which("mpirun"))

    def compile(self, path, name, *flags):
        to = self.folder / f"{name}.o"
        command("nvcc", "-w", "-std=c++17", "-O3", "-arch=compute_90", f"-I{self.header}", *flags, "-c", path, "-o", to)
        return to

    def link(self, names):
        sources, nccl = self.source / "src", self.build / "bindings/nccl"
        shared = (self.source / "verifiable/verifiable.cu", *sources.glob("timer.c*"), *sources.glob("util.cu"))
        common = [self.compile(path, path.stem) for path in shared]
        flavours = [("", [], [])]
        if self.has_mpi:
            include, libraries = ([f"-{letter}{each}" for each in mpi_flags(what)] for letter, what in (("I", "incdirs"), ("L", "libdirs")))
            flavours.append(("mpi_", ["-DMPI_SUPPORT", *include], [*libraries, "-lmpi"]))
        for prefix, flags, libraries in flavours:
            main = self.compile(sources / "common.cu", prefix + "common", *flags)
            for name in names:
                one = self.compile(sources / f"{name}.cu", prefix + name, *flags)
                command("nvcc", "-cudart", "shared", one, main, *common, "-o", self.folder / (prefix + name), f"-L{nccl}", "-l:libnccl.so.2", *libraries)

    def translate(self):
        """Has the stand-in execute the kernels that make and check the data."""
        code = self.folder / "verifiable.cpp"
        command(sys.executable, ROOT / "tests/cuda/ptx/translate_cu.py", "--nvcc", "nvcc", "--target", "90", "--output", code, f"--flag=-I{self.header}",
                "--flag=-w", self.source / "verifiable/verifiable.cu")
        command("g++", "-std=c++20", "-O1", "-w", "-fno-strict-aliasing", "-ffp-contract=off", "-fvisibility=hidden", "-fPIC", "-shared", f"-I{ROOT}",
                "-o", code.with_suffix(".so"), code)

    def environment(self):
        kernels = [*self.build.glob("tests/kernels/libtranslated_*.so"), self.folder / "verifiable.so"]
        return {"LD_LIBRARY_PATH": f"{self.build}/tests/cuda:{self.build}/bindings/nccl", "FAKE_CUDA_KERNELS": ":".join(str(each) for each in kernels),
                "FAKE_CUDA_DEVICES": "4", "FAKE_CUDA_TIMEOUT_MS": "120000", "NCCL_SOCKET_IFNAME": "lo", "TUTTI_TIMEOUT_MS": "60000",
                "TUTTI_STARTUP_TIMEOUT_MS": "60000"}

    def run(self, name, processes, options, variables):
        """Returns the number of rows, and of those with a wrong element; ends where the program fails otherwise."""
        words = [str(self.folder / (("mpi_" if processes else "") + name)), *options.split()]
        variables = self.environment() | variables
        if processes:
            exports = [word for each in variables.items() for word in ("-x", "=".join(each))]
            words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(processes), *exports, *words]
            variables = {}
        done = subprocess.run(words, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
        rows = [found.groups() for found in map(ROW.match, done.stdout.splitlines()) if found]
        wrong = sum(1 for row in rows if any(each not in ("0", "N/A") for each in row))
        if not rows or "Out of bounds values" not in done.stdout:
            sys.exit(f"{done.stdout[-2000:]}\nstatus {done.returncode}")
        return len(rows), wrong


def confuses_hypercube(processes, options):
    """NVIDIA/nccl-tests issue 190: several ranks of a thread make all steps in one group, and each step needs what the one before has brought."""
    gpus, threads = (int(found[1]) if (found := re.search(f"-{each} (\\d)", options)) else 1 for each in "gt")
    return gpus > 1 and gpus * threads * max(processes, 1) > 2


def main(build, header, source, *names):
    if not pathlib.Path(source, "src/common.cu").is_file():
        sys.exit(f"{source} has no nccl-tests: there is no src/common.cu in it")
    programs = Programs(*(pathlib.Path(each).resolve() for each in (build, header, source)))
    names = names or PROGRAMS
    programs.link(names)
    programs.translate()
    failed = 0
    for processes, options, variables in WAYS:
        if processes and not programs.has_mpi:
            continue
        print(f"{' '.join('='.join(each) for each in variables.items())}{f' mpirun -np {processes}' if processes else ''} {options}".strip())
        for name in names:
            if name == "hypercube" and confuses_hypercube(processes, options):
                continue
            rows, wrong = programs.run(name, processes, options, variables)
            print(f"  {name:15} {rows:4} rows, {wrong} with wrong elements", flush=True)
            failed += wrong != 0
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        sys.exit(str(error))
