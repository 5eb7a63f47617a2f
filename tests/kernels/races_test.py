"""ThreadSanitizer finds no race in the kernels, and finds each fault that is planted in their order of memory:
races_test.py PROGRAM FAULT=LIBRARY..."""
import os
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]
LIBRARIES = dict(argument.split("=", 1) for argument in sys.argv[2:])


def run(library):
    environment = dict(os.environ, FAKE_CUDA_KERNELS=library, FAKE_CUDA_TIMEOUT_MS="60000", TSAN_OPTIONS="exitcode=66")
    return subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=240, check=False)


class Races(unittest.TestCase):
    def test_there_are_none(self):
        done = run(LIBRARIES["none"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 test ran", done.stdout.replace("1 test from 1 test suite ran", "1 test ran"))
        self.assertNotIn("SKIPPED", done.stdout)

    def test_each_planted_fault_is_seen(self):
        planted = sorted(set(LIBRARIES) - {"none"})
        self.assertGreaterEqual(len(planted), 6)
        for fault in planted:
            with self.subTest(fault):
                done = run(LIBRARIES[fault])
                self.assertIn("ThreadSanitizer: data race", done.stderr, done.stdout)
                self.assertIn("tutti_run_bytes", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
