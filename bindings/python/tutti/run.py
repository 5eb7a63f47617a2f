"""Starts ranks of a Python program on this machine: python -m tutti.run -n 4 program.py [argument ...]

Options before the program are tutti-run's (tutti-run --help).
"""

import os
import shutil
import sys
import sysconfig

_WITH_VALUE = {"-n", "--ranks", "--env", "--bind", "--timeout", "--grace", "--port", "--max-failures",
               "--max-restarts", "--join"}


def _launcher() -> str:
    # A package in a build folder (bindings/python/tutti) uses the tutti-run of that build.
    built = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/tutti-run")
    beside = os.path.join(sysconfig.get_path("scripts"), "tutti-run")
    for found in built, beside, shutil.which("tutti-run"):
        if found is not None and os.access(found, os.X_OK):
            break
    else:
        sys.exit("tutti.run: there is no tutti-run, neither beside python nor in PATH; install the package again")
    return found


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Returns the launcher's options, and the program with its arguments."""
    k = 0
    while k < len(arguments) and arguments[k].startswith("-") and arguments[k] != "--":
        k += 2 if arguments[k] in _WITH_VALUE else 1
    program = arguments[k + 1 :] if arguments[k : k + 1] == ["--"] else arguments[k:]
    return arguments[:k], program


def main() -> None:
    options, program = _split(sys.argv[1:])
    if not program and not options:
        sys.exit(__doc__.strip())
    launcher = _launcher()
    command = [launcher, *options]
    if program:
        command += ["--", sys.executable, *program]
    os.execv(launcher, command)


if __name__ == "__main__":
    main()
