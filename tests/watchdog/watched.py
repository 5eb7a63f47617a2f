"""The watchdog of tests in Python: if a test takes too long, stacks.py writes all stacks and ends it."""

import atexit
import faulthandler
import os
import pathlib
import subprocess
import sys
import unittest

PATIENCE_S = 180  # TUTTI_TEST_PATIENCE sets another number of seconds; 0 means no limit

_watcher = None


def _start():
    global _watcher
    faulthandler.enable(file=sys.__stderr__)
    os.environ["PYTHONFAULTHANDLER"] = "1"  # for the ranks that tests start
    os.environ["TUTTI_TEST_WATCHED"] = str(os.getpid())
    _watcher = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("stacks.py"), "--watch", str(os.getpid())],
                                stdin=subprocess.PIPE)
    atexit.register(_watcher.stdin.close)


def begins(what):
    """Starts the time limit of `what`. A later call replaces it."""
    seconds = int(os.environ.get("TUTTI_TEST_PATIENCE", PATIENCE_S))
    if seconds == 0:
        return
    if _watcher is None:
        _start()
    _watcher.stdin.write(f"{seconds} {what} has taken more than {seconds} s\n".encode())
    _watcher.stdin.flush()


class Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        begins(test.id())

    def stopTest(self, test):
        super().stopTest(test)
        begins(f"what is after {test.id()}")


def main(argv=sys.argv[:1]):
    unittest.main(argv=argv, testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Result))
