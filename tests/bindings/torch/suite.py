#!/usr/bin/env python3
"""Runs the tests of torch.distributed that ship inside PyTorch's wheel with a backend.

usage: BACKEND=tutti WORLD_SIZE=2 suite.py [--json <file>] [name ...]

Names are parts of tests' names; without any, all tests are run. Ranks are forked, not spawned, so that torch is
imported once. A skipped test is counted as skipped, with its reason. Tests that PyTorch runs only for backends named
gloo or MPI are run with tutti as well, since nothing but the name excludes it. With nccl the GPUs are a stand-in's, of
which FAKE_CUDA_DEVICES says the number, and the host executes PyTorch's operators.
"""

import argparse
import collections
import fnmatch
import json
import os
import sys
import tempfile
import unittest

import report


class Tutti(str):
    """A backend's name that is also equal to the names of other backends for which a test asks."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other in ("gloo", "mpi")

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self.found_as)

    found_as = "tutti"  # sets of names find it by this name


# PyTorch itself, not a test, offers these only to its own backends.
BY_NAME = {
    "test_monitored_barrier_*": "torch.distributed.monitored_barrier is only for a backend named gloo",
    "test_ddp_logging_data_cpu": "DistributedDataParallel logs every other backend's name as custom",
}

# The host executes PyTorch's operators in place of GPUs.
ON_HOST = {
    "test_ddp_uneven_inputs": "large networks take minutes by the host's kernels",
    "test_ddp_apply_optim_in_backward": "large networks take minutes by the host's kernels",
    "test_ddp_apply_optim_in_backward_grad*": "large networks take minutes by the host's kernels",
    "test_DistributedDataParallel_with_amp_and_grad_is_view": "an operator of the host takes no operands of two types",
    "test_ddp_compile_static_graph": "TorchInductor's kernels are made by Triton",
}


class Environment(collections.ChainMap):
    """os.environ, with a BACKEND that is not a plain string."""

    def copy(self):
        return dict(self)


def use_stand_in():
    """Has the ranks find GPUs, for which the test itself, which forks them, must not make a context."""
    import host_kernels
    import torch.utils._triton

    torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: int(os.environ["FAKE_CUDA_DEVICES"])
    torch.utils._triton.has_triton = lambda: False  # It asks the GPU.
    host_kernels.install()


def import_tests(backend):
    if backend == "nccl":
        use_stand_in()
    from torch.testing._internal.common_distributed import DistTestCases

    if backend == "tutti":
        import tutti.torch  # registers the backend, in the spawned ranks, too

        for feature in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
            DistTestCases.backend_feature[feature].add("tutti")
    real = os.environ
    os.environ = Environment({"BACKEND": Tutti(backend) if backend == "tutti" else backend}, real)
    Tutti.found_as = "gloo"
    try:
        from torch.testing._internal.distributed import distributed_test
    finally:
        os.environ = real
        Tutti.found_as = "tutti"
    if backend == "tutti":
        for supported in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
            getattr(distributed_test, supported).append("tutti")
    return distributed_test


import torch

if __name__ == "__main__":
    FOLDER = tempfile.TemporaryDirectory()
    for name in ("barrier", "test_dir"):
        os.makedirs(os.path.join(FOLDER.name, name))
    os.environ.update(TEMP_DIR=FOLDER.name, INIT_METHOD=f"file://{FOLDER.name}/init")
tests = import_tests(os.environ["BACKEND"])


class TestDistributed(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    def setUp(self):
        for name, reason in {"tutti": BY_NAME, "nccl": ON_HOST}.get(str(tests.BACKEND), {}).items():
            if fnmatch.fnmatch(self._testMethodName, name):
                self.skipTest(reason)
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def chosen(names):
    every = unittest.TestLoader().getTestCaseNames(TestDistributed)
    return [each for each in every if not names or any(name in each for name in names)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    suite = unittest.TestSuite(map(TestDistributed, chosen(arguments.names)))
    outcomes, status = report.run(suite)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(outcomes, file, indent=1)
    return status


if __name__ == "__main__":
    sys.exit(main())
