#!/usr/bin/env python3
"""Has nvcc compile CUDA sources to PTX, and translates that into one C++ source (translate.py).

usage: translate_cu.py --nvcc NVCC --target 90 --output OUT.cpp [--depfile FILE] [--flag=-DX ...] FILE.cu...
"""

import argparse
import pathlib
import re
import subprocess
import sys

import translate

FLAGS = ["-std=c++20", "--expt-relaxed-constexpr", "-O2", "-lineinfo"]


def compile_ptx(options, source, folder):
    """Returns the path of the PTX, and the files that it depends on."""
    ptx = folder / f"{source.stem}.ptx"
    dependencies = folder / f"{source.stem}.d"
    command = [options.nvcc, *FLAGS, *options.flag, f"-arch=compute_{options.target}", "-ptx", "-MMD", "-MF", str(dependencies),
               "-o", str(ptx), str(source)]
    subprocess.run(command, check=True)
    text = dependencies.read_text(encoding="utf-8").replace("\\\n", " ")
    return str(ptx), text.partition(":")[2].split()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--depfile", type=pathlib.Path)
    parser.add_argument("--flag", action="append", default=[])
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    folder = options.output.parent / (options.output.name + ".ptx")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        compiled = [compile_ptx(options, each, folder) for each in options.sources]
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    translate.main(str(options.output), *[ptx for ptx, _ in compiled])
    if options.depfile:
        own = [str(each) for each in pathlib.Path(__file__).parent.glob("*.py")]
        needed = sorted(own + [re.sub(r"\s", r"\\ ", each) for _, found in compiled for each in found])
        options.depfile.write_text(f"{options.output}: " + " ".join(needed) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
