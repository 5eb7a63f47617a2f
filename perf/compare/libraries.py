"""The libraries that are compared: a row for each, which says how it is built and started."""
import dataclasses
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMMON = [HERE / "method.cpp", ROOT / "tools/perf/limits.cpp", ROOT / "tools/perf/cores.cpp"]
HEADERS = [HERE / "method.h", ROOT / "tools/perf/limits.h", ROOT / "tools/perf/cores.h"]


class Failure(Exception):
    """A command that failed or took too long; `output` is what it had written."""

    def __init__(self, message, output=""):
        super().__init__(message)
        self.output = output


def run(command, limit_s):
    """Standard output of a command that must succeed. It gets a session of its own, to be ended whole."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, text=True, start_new_session=True)
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
    """Launchers end their ranks when they are asked to. What had been written."""
    process.terminate()
    try:
        return process.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def open_mpi(*options):
    def launch(ranks, crowded, build):
        placing = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"] if crowded else []
        return ["mpirun.openmpi", "--allow-run-as-root", "--use-hwthread-cpus", "--bind-to", "none",
                *options, *placing, "-n", ranks]
    return launch


def mpich(ranks, crowded, build):
    return ["mpiexec.mpich", "-n", ranks]


def tutti_run(ranks, crowded, build):
    return [build / "tools/tutti-run", "--no-tag", "--bind", "none", "-n", ranks, "--"]


@dataclasses.dataclass(frozen=True)
class Library:
    name: str
    title: str
    needs: tuple    # programs and files that are there when its packages are
    packages: str
    compiler: tuple  # empty: built with the project
    source: str
    libraries: tuple
    launch: object  # (ranks, more ranks than cores, build folder): the words before the program
    version: tuple  # a command whose first line says it
    program: str

    def missing(self):
        """The packages to install, or None when it can be compared."""
        there = all(pathlib.Path(need).exists() if need[0] == "/" else shutil.which(need) for need in self.needs)
        return None if there else self.packages

    def build(self, build):
        """The program, built again when a source is newer."""
        program = build / "perf" / self.program
        if not self.compiler:
            if not program.exists():
                raise Failure(f"{program} is missing: build it first (./dev build)")
            return program
        sources = [HERE / self.source, *COMMON]
        newest = max(path.stat().st_mtime for path in [*sources, *HEADERS])
        if not program.exists() or program.stat().st_mtime < newest:
            run([*self.compiler, "-std=c++20", "-O3", "-I", ROOT / "tools", *sources, "-o", program,
                 *self.libraries, "-lfmt", "-pthread"], 300)
        return program

    def version_text(self):
        return run(self.version, 30).splitlines()[0] if self.version else self.title


MPICXX = {"openmpi": ("mpirun.openmpi", "mpicxx.openmpi"), "mpich": ("mpiexec.mpich", "mpicxx.mpich")}
OPEN_MPI_PACKAGES = "openmpi-bin and libopenmpi-dev"

# Open MPI's UCX says no to machines without a network card for it, unless it is told that any will do.
LIBRARIES = [
    Library("tutti", "tutti", (), "", (), "", (), tutti_run, (), "tutti_bench"),
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
            ("-lgloo",), tutti_run, ("dpkg-query", "-W", "-f", "Gloo ${Version}\\n", "libgloo-dev"), "gloo_bench"),
]
