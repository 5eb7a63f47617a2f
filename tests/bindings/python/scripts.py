"""Runs a script on ranks that tutti-run starts."""

import subprocess
import sys
import tempfile


def run(text, *options):
    """Runs the script with numpy and tutti imported, by `python -m tutti.run` with the options, and returns how it ended."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write("import sys, numpy, tutti\n" + text)
        program.flush()
        return subprocess.run([sys.executable, "-m", "tutti.run", *options, program.name, "word"],
                              capture_output=True, text=True, timeout=300)
