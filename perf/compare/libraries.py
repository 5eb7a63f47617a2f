"""The libraries that are compared. LIBRARIES has a row for each, which says how it is built and started."""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMMON = [HERE / "method.cpp", *(ROOT / f"tools/perf/{name}.cpp" for name in ("cores", "limits", "pattern")),
          ROOT / "common/names.cpp"]
HEADERS = [HERE / "method.h", HERE / "shared_folder.h",
           *(ROOT / f"tools/perf/{name}.h" for name in ("cores", "iterations", "limits", "pages", "pattern"))]

# Peers that Debian 12 does not have. `./dev bench` puts them here when they are named; `version` is written last.
PEERS = ROOT / "build" / "peers"
ONECCL, UCC = PEERS / "oneccl", PEERS / "ucc"
UCC_FILES = UCC / "packages" / "nvidia" / "libcal" / "cu12"


class Failure(Exception):
    """A command that failed or took too long; `output` is what it had written until then."""

    def __init__(self, message, output=""):
        super().__init__(message)
        self.output = output


def start(command):
    """Starts a command in a process group of its own, since Ctrl-C is for this process. It stays in this session:
    Linux gives each session its own share of the cores (autogroup), and ranks that share one could not make way for
    others."""
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            stdin=subprocess.DEVNULL, text=True, preexec_fn=os.setpgrp)


def run_all(commands, limit_s):
    """Runs several commands at the same time, all of which must succeed. Returns the first one's standard output."""
    others = [start(command) for command in commands[1:]]
    out, why = "", ""
    try:
        out = run(commands[0], limit_s)
    except Failure as failure:
        out, why = failure.output, str(failure)
    for process in others:
        try:
            err = process.communicate(timeout=1 if why else limit_s)[1]
        except subprocess.TimeoutExpired:
            err = f"no end within {limit_s} s"
            end(process)
        if process.returncode != 0:
            why += f"exit status {process.returncode}: {' '.join(map(str, process.args))}\n{err}"
    if why:
        raise Failure(why, out)
    return out


def run(command, limit_s):
    """Runs a command, which must succeed. Returns its standard output."""
    process = start(command)
    try:
        out, err = process.communicate(timeout=limit_s)
    except BaseException as error:
        out = end(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise Failure(f"no end within {limit_s} s", out) from error
        raise
    if process.returncode != 0:
        raise Failure(f"exit status {process.returncode}: {' '.join(map(str, command))}\n{out}{err}")
    return out


def end(process):
    """Asks a launcher to end, which ends its ranks. Returns what it had written."""
    process.terminate()
    try:
        return process.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def machine_limits(build, size, limit_s):
    """Returns what tutti-perf --limits prints: the one-way time of a cache line in ns, and two times of `size` in us,
    for both cores copying and for one direction."""
    out = run([pathlib.Path(build) / "tools/tutti-perf", "--limits", "-b", size, "-e", size], limit_s)
    one_way_ns = float(re.search(r"One way of a cache line: ([0-9.]+) ns", out).group(1))
    return one_way_ns, *map(float, out.split()[-2:])


def open_mpi(*options):
    def launch(ranks, crowded, build):
        placing = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"] if crowded else []
        return ["mpirun.openmpi", "--allow-run-as-root", "--use-hwthread-cpus", "--bind-to", "none",
                *options, *placing, "-n", ranks]
    return launch


def open_mpi_across(machines, ranks, crowded, build):
    """Open MPI starts its daemons on other machines with a command that the machines provide instead of ssh."""
    each = ranks // machines.count
    hosts = ",".join(f"{machines.address(machine)}:{each}" for machine in range(machines.count))
    network = ["--mca", "btl_tcp_if_include", "cable", "--mca", "oob_tcp_if_include", "cable"]
    launch = open_mpi("--mca", "pml", "ob1", "--mca", "btl", "tcp,vader,self", *network, "--host", hosts,
                      "--mca", "plm_rsh_agent", machines.remote_shell(), *(["--map-by", "node"] if machines.by_turns else []))
    return [machines.on(0, launch(ranks, crowded, build))]


def mpich(ranks, crowded, build):
    return ["mpiexec.mpich", "-n", ranks]


def intel_mpi(ranks, crowded, build):
    """oneCCL's default transport is Intel MPI, whose launcher would bind each rank to a core before the program does.
    oneCCL's own threads would all share the last core, so that the ranks do their work."""
    variables = {"I_MPI_ROOT": ONECCL, "LD_LIBRARY_PATH": ONECCL / "lib", "FI_PROVIDER_PATH": ONECCL / "lib",
                 "I_MPI_PIN": "off", "CCL_WORKER_OFFLOAD": 0, "CCL_LOG_LEVEL": "error"}
    if crowded:
        variables |= {"CCL_YIELD": "sched_yield", "I_MPI_THREAD_YIELD": 2}  # 2: sched_yield as well
    return ["env", *(f"{name}={value}" for name, value in variables.items()), ONECCL / "bin/mpiexec.hydra", "-n", ranks]


def tutti_run(ranks, crowded, build):
    return [build / "tools/tutti-run", "--no-tag", "--bind", "none", "-n", ranks, "--"]


def by_variables(machines, ranks, crowded, build):
    """Returns a command for each rank, as a user's own launcher would start them."""
    common = [f"WORLD_SIZE={ranks}", f"LOCAL_WORLD_SIZE={ranks // machines.count}", f"MASTER_ADDR={machines.address(0)}",
              "MASTER_PORT=29500", "TUTTI_TRUST_NETWORK=yes", "COMPARE_INTERFACE=cable"]
    places = [machines.place_of(rank, ranks) for rank in range(ranks)]
    return [machines.on(machine, ["env", *common, f"RANK={rank}", f"LOCAL_RANK={local}"])
            for rank, (machine, local) in enumerate(places)]


def script(ranks, crowded, build):
    return ["env", f"RANKS={ranks}", f"BUILD={build}", sys.executable]


@dataclasses.dataclass(frozen=True)
class Library:
    name: str
    title: str
    needs: tuple  # programs and files that exist if its packages are installed
    packages: str
    compiler: tuple  # empty: the project builds it, or it is a script
    source: str
    libraries: tuple
    launch: object  # (ranks, more ranks than cores, build folder) -> words before the program; None: no such runs
    version: tuple  # a command that prints the version in its first line
    program: str
    across: object = None  # (machines, ...) -> such words for each command; None: not between machines
    most_ranks: int = None  # None: any number

    def runs(self, machines):
        return (self.launch if machines == 1 else self.across) is not None

    def serves(self, ranks):
        return self.most_ranks is None or ranks <= self.most_ranks

    def missing(self):
        """Returns the packages to install, or None if it can be compared."""
        there = all(pathlib.Path(need).exists() if need[0] == "/" else shutil.which(need) for need in self.needs)
        return None if there else self.packages

    def build(self, build):
        """Returns the program, after building it again if a source is newer."""
        if self.source.endswith(".py"):
            return HERE / self.source
        program = build / "perf" / self.program
        if not self.compiler:
            if not program.exists():
                raise Failure(f"{program} is missing: build it first (./dev build)")
            return program
        sources = [HERE / self.source, *COMMON]
        newest = max(path.stat().st_mtime for path in [*sources, *HEADERS])
        if not program.exists() or program.stat().st_mtime < newest:
            run([*self.compiler, "-std=c++20", "-O3", "-I", ROOT / "tools", "-I", ROOT / "include", *sources, "-o", program,
                 *self.libraries, "-lfmt", "-pthread"], 300)
        return program

    def version_text(self):
        return run(self.version, 30).splitlines()[0] if self.version else self.title


MPICXX = {"openmpi": ("mpirun.openmpi", "mpicxx.openmpi"), "mpich": ("mpiexec.mpich", "mpicxx.mpich")}
OPEN_MPI_PACKAGES = "openmpi-bin and libopenmpi-dev"

# Open MPI's UCX refuses machines without a suitable network card, unless it is told that any device will do.
LIBRARIES = [
    Library("tutti", "tutti", (), "", (), "", (), tutti_run, (), "tutti_bench", by_variables),
    Library("bare", "bare sockets", (), "", ("c++",), "bare_bench.cpp", (), None, (), "bare_bench", by_variables,
            most_ranks=2),
    Library("openmpi_tcp", "Open MPI (TCP)", MPICXX["openmpi"], OPEN_MPI_PACKAGES, ("mpicxx.openmpi",), "mpi_bench.cpp",
            (), None, ("mpirun.openmpi", "--version"), "openmpi_bench", open_mpi_across),
    Library("openmpi", "Open MPI (vader, process_vm_readv)", MPICXX["openmpi"], OPEN_MPI_PACKAGES,
            ("mpicxx.openmpi",), "mpi_bench.cpp", (), open_mpi("--mca", "pml", "ob1", "--mca", "btl", "vader,self"),
            ("mpirun.openmpi", "--version"), "openmpi_bench"),
    Library("openmpi_ucx", "Open MPI over UCX", MPICXX["openmpi"], OPEN_MPI_PACKAGES,
            ("mpicxx.openmpi",), "mpi_bench.cpp", (),
            open_mpi("--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"),
            ("mpirun.openmpi", "--version"), "openmpi_bench"),
    Library("mpich", "MPICH", MPICXX["mpich"], "mpich and libmpich-dev", ("mpicxx.mpich",), "mpi_bench.cpp",
            (), mpich, ("mpichversion",), "mpich_bench"),
    Library("gloo", "Gloo (TCP)", ("/usr/include/gloo/allreduce.h",), "libgloo-dev", ("c++",), "gloo_bench.cpp",
            ("-lgloo",), tutti_run, ("dpkg-query", "-W", "-f", "Gloo ${Version}\\n", "libgloo-dev"), "gloo_bench",
            by_variables),
    Library("oneccl", "oneCCL over Intel MPI", (str(ONECCL / "version"),), "it with `./dev bench --peers oneccl` "
            "(from PyPI: oneccl-cpu-devel and impi-rt)", ("c++",), "oneccl_bench.cpp",
            ("-I", ONECCL / "include", "-L", ONECCL / "lib", f"-Wl,-rpath,{ONECCL / 'lib'}", "-lccl"), intel_mpi,
            ("cat", ONECCL / "version"), "oneccl_bench"),
    Library("ucc", "UCC", (str(UCC / "version"),), "it with `./dev bench --peers ucc` (from PyPI: nvidia-libcal-cu12, "
            "which holds it)", ("c++",), "ucc_bench.cpp",
            ("-I", UCC_FILES / "include", UCC_FILES / "lib/libucc.so.1", f"-Wl,-rpath,{UCC_FILES / 'lib'}",
             f"-Wl,-rpath-link,{UCC / 'packages/libucx/lib'}"), tutti_run, ("cat", UCC / "version"), "ucc_bench"),
    Library("ucx_perftest", "ucx_perftest, tag_lat", ("ucx_perftest",), "ucx-utils", (), "ucx_perftest.py", (), script,
            ("dpkg-query", "-W", "-f", "UCX ${Version}\\n", "ucx-utils"), ""),
]
