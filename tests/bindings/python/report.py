"""Reports the outcome of each unittest in a line of its own, even if ranks write in between."""

import collections
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "watchdog"))
import watched  # noqa: E402


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.all = {}  # (outcome, why) by the name of the test

    def startTest(self, test):
        super().startTest(test)
        watched.begins(test.id())
        self.all[test._testMethodName] = ("passed", "")

    def stopTest(self, test):
        super().stopTest(test)
        watched.begins(f"what is after {test.id()}")
        outcome, why = self.all[test._testMethodName]
        words = {"passed": "ok", "failed": "FAIL", "skipped": f"skipped {why!r}"}[outcome]
        sys.stderr.write(f"\n{test._testMethodName} ({type(test).__name__}) ... {words}\n")
        if outcome == "failed":
            sys.stderr.write(why + "\n")
        sys.stderr.flush()

    def note(self, test, outcome, why):
        self.all[test._testMethodName] = (outcome, why)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failed", self._exc_info_to_string(error, test)[-3000:])

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.note(test, "failed", f"{subtest}: {self._exc_info_to_string(error, test)[-3000:]}")


def run(suite):
    """Runs the suite. Returns the outcomes by the name of the test, and the exit status."""
    result = Result()
    suite.run(result)
    count = collections.Counter(outcome for outcome, _ in result.all.values())
    sys.stderr.write(f"Ran {result.testsRun} tests in all\n")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return result.all, 1 if count["failed"] or not result.testsRun else 0


def main():
    names = sys.argv[1:]
    cases = [case for group in unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]) for case in group]
    chosen = [case for case in cases if not names or any(name in case.id() for name in names)]
    sys.exit(run(unittest.TestSuite(chosen))[1])
