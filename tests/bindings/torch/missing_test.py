#!/usr/bin/env python3
"""Replaces the tests of tutti.torch if there is no PyTorch."""

import unittest

import report


class Torch(unittest.TestCase):
    @unittest.skip("needs PyTorch: ./dev setup --torch")
    def test_the_backend_of_torch_distributed(self):
        pass


if __name__ == "__main__":
    report.main()
