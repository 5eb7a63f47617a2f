#!/usr/bin/env python3
"""Runs a command where RDMA works: in a virtual machine with soft-RoCE, on a machine whose kernel has none.

usage: tests/rdma/vm.py [--timeout S] [--cpus N] [--memory MIB] [--console FILE] -- command [argument ...]

Boots Debian's own kernel in QEMU (with KVM where it works) on this machine's root file system. What the command
writes there is forgotten. The command runs as root, in the same folder and environment, with RDMA_VM=1; its output
and exit status are those of this program. init.sh says which devices there are.

Exit status: the command's; 124 where it ran out of time, 125 where the machine failed, 2 for wrong usage.
Needs: qemu-system-x86 busybox-static kmod cpio xz-utils iproute2, and 70 MB from Debian at the first use.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "tutti-rdma-vm"
TOOLS = ["qemu-system-x86_64", "busybox", "modprobe", "depmod", "cpio", "xz", "apt-get", "dpkg"]
MODULES = ["virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay", "crc32_generic", "crc32_pclmul", "rdma_rxe",
           "ib_uverbs", "veth", "sch_netem", "sch_tbf"]
# The compressed kernel inside the image: the bytes with which it begins, and what unpacks it.
PACKED = [(b"\xfd7zXZ\x00", ["xz", "-dc", "--single-stream"]), (b"\x28\xb5\x2f\xfd", ["zstd", "-dc"])]
PROBE_SECONDS = 15


class Failure(Exception):
    """The machine cannot be made or run."""


def output_of(*command, **options):
    result = subprocess.run(command, capture_output=True, check=False, **options)
    if result.returncode != 0:
        raise Failure(f"{' '.join(command)}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


def kernel_package():
    text = output_of("apt-cache", "show", "--no-all-versions", "linux-image-amd64").decode()
    found = re.search(r"^Depends:.*?(linux-image-[0-9][^ ,]*)", text, re.M)
    if not found:
        raise Failure("apt knows no linux-image-amd64: run apt-get update")
    return found.group(1)


def unpacked_kernel(image):
    """Returns the ELF kernel inside an image, which boots without unpacking itself in the slow machine."""
    for magic, unpack in PACKED:
        at = image.find(magic)
        if at < 0 or not shutil.which(unpack[0]):
            continue
        kernel = subprocess.run(unpack, input=image[at:], capture_output=True, check=False).stdout
        if kernel.startswith(b"\x7fELF"):
            return kernel
    return image


def make_initrd(tree, folder):
    version = next((tree / "lib/modules").iterdir()).name
    subprocess.run(["depmod", "-b", tree, version], check=True)
    for name in ["bin", "modules", "proc", "sys", "dev", "host", "writes", "root"]:
        (folder / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), folder / "bin/busybox")
    shutil.copy(HERE / "init.sh", folder / "init")
    (folder / "init").chmod(0o755)
    order = []
    for module in MODULES:
        for line in output_of("modprobe", "-d", tree, "-S", version, "--show-depends", module).decode().splitlines():
            word, _, path = line.partition(" ")
            path = pathlib.Path(path.strip())
            name = path.name.split(".ko")[0] + ".ko"
            if word != "insmod" or name in order:
                continue
            order.append(name)
            unpack = {".xz": ["xz", "-dc"], ".zst": ["zstd", "-dc"]}.get(path.suffix, ["cat"])
            (folder / "modules" / name).write_bytes(output_of(*unpack, str(path)))
    (folder / "modules/order").write_text("".join(f"{name}\n" for name in order))
    names = "\n".join(str(path.relative_to(folder)) for path in sorted(folder.rglob("*")))
    return output_of("cpio", "-o", "-H", "newc", "--quiet", cwd=folder, input=names.encode())


def prepare():
    """Makes the kernel and the first file system, once for each version of this folder. Returns where they are."""
    stamp = hashlib.sha256((HERE / "init.sh").read_bytes() + pathlib.Path(__file__).read_bytes()).hexdigest()[:16]
    made = CACHE / stamp
    if made.exists():
        return made
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        work = pathlib.Path(name)
        package = kernel_package()
        print(f"vm: first use: getting {package}", file=sys.stderr)
        output_of("apt-get", "-qq", "download", package, cwd=work)
        output_of("dpkg", "-x", str(next(work.glob("*.deb"))), str(work / "tree"))
        if not (work / "tree/lib").exists():
            (work / "tree/lib").symlink_to("usr/lib")
        (work / "made").mkdir()
        (work / "made/kernel").write_bytes(unpacked_kernel(next((work / "tree/boot").glob("vmlinuz-*")).read_bytes()))
        (work / "made/initrd").write_bytes(make_initrd(work / "tree", work / "initrd"))
        try:
            (work / "made").rename(made)
        except OSError:  # another process was faster
            if not made.exists():
                raise
    return made


def qemu(made, options, accelerated, arguments, console, more=()):
    cpu = ["-accel", "kvm", "-cpu", "host"] if accelerated else ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"]
    return ["qemu-system-x86_64", *cpu, "-smp", str(options.cpus), "-m", str(options.memory), "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot", "-kernel", str(made / "kernel"), "-initrd", str(made / "initrd"),
            "-serial", f"file:{console}", "-append", f"console=ttyS0 quiet panic=-1 mitigations=off nokaslr {arguments}", *more]


def kvm_works(made, options, work):
    """Some machines have a /dev/kvm that cannot run a kernel, so it is tried, once for each boot of the host."""
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    seen = CACHE / f"kvm-{boot}"
    if not seen.exists():
        works = False
        if os.access("/dev/kvm", os.R_OK | os.W_OK):
            console = work / "probe"
            try:
                subprocess.run(qemu(made, options, True, "vm_probe", console), stdin=subprocess.DEVNULL, capture_output=True,
                               timeout=PROBE_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                pass
            works = console.exists() and "probe passed" in console.read_text(errors="replace")
        seen.write_text("yes" if works else "no")
    return seen.read_text() == "yes"


def write_command(path, command):
    lines = [f"export {name}={shlex.quote(value)}" for name, value in os.environ.items() if re.fullmatch(r"\w+", name)]
    lines += [f"cd {shlex.quote(os.getcwd())} || exit 125", "ulimit -l unlimited -c 0", "export RDMA_VM=1",
              f"exec {shlex.join(command)}"]
    path.write_text("\n".join(lines) + "\n")


def run(options, work):
    made = prepare()
    write_command(work / "command", options.command)
    os.mkfifo(work / "out")
    for name in ["status", "console"]:
        (work / name).touch()
    reader = subprocess.Popen(["cat", work / "out"])
    ports = ["-device", "virtio-serial-pci"]
    for name in ["out", "status"]:
        ports += ["-chardev", f"file,id={name},path={work / name}", "-device", f"virtserialport,chardev={name},name={name}"]
    root = "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"
    accelerated = kvm_works(made, options, work)
    machine = subprocess.Popen(
        qemu(made, options, accelerated, f"vm_folder={work}", work / "console", [*ports, "-virtfs", root]), stdin=subprocess.DEVNULL)
    try:
        machine.wait(options.timeout)
        late = False
    except subprocess.TimeoutExpired:
        late = True
    finally:
        machine.kill()
        machine.wait()
        os.close(os.open(work / "out", os.O_RDWR))  # frees the reader where QEMU never opened the pipe
        reader.wait()
        if options.console:
            shutil.copy(work / "console", options.console)
    status = (work / "status").read_text().strip()
    if status:
        return int(status)
    sys.stderr.write("".join((work / "console").read_text(errors="replace").splitlines(True)[-25:]))
    how = "KVM" if accelerated else "emulated"
    print(f"vm: {f'no end after {options.timeout} s' if late else 'the machine ended without a result'} ({how})", file=sys.stderr)
    return 124 if late else 125


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--cpus", type=int, default=max(2, min(4, os.cpu_count() or 2)))
    parser.add_argument("--memory", type=int, default=3072)
    parser.add_argument("--console")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    try:
        missing = [tool for tool in TOOLS if not shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")]
        if missing:
            raise Failure(f"these programs are missing: {', '.join(missing)}")
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        with tempfile.TemporaryDirectory(prefix="tutti-vm-") as work:
            return run(options, pathlib.Path(work))
    except Failure as failure:
        print(f"vm: {failure}", file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main())
