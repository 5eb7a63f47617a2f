#!/usr/bin/env python3
"""Makes UCX's own ucx_perftest a side of the comparison: it sends a tagged message there and back.

usage: RANKS=<n> BUILD=<folder> ucx_perftest.py <folder> <operation> <bytes> ...

It uses its own method, which equals that of method.h except that results are not checked. It prints nothing
for operations that it does not offer. `one_way_ns` comes from tutti-perf in the build folder.
"""
import csv
import json
import os
import socket
import subprocess
import sys

from libraries import machine_limits

TEST_S = 60
LEAST_US = 10_000  # the least time that the other programs measure


def one_way_ns():
    return machine_limits(os.environ["BUILD"], 8, TEST_S)[0]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def time_us(size, calls, cores):
    """Returns half the time of a message there and back, the mean of `calls`."""
    test = ["ucx_perftest", "-t", "tag_lat", "-s", str(size), "-n", str(calls), "-w", str(max(10, calls // 10)), "-f", "-v"]
    port = str(free_port())
    server = subprocess.Popen(["ucx_perftest", "-p", port, "-c", str(cores[0]), "-f"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        for attempt in range(200):
            client = subprocess.run([*test, "127.0.0.1", "-p", port, "-c", str(cores[1])], capture_output=True, text=True,
                                    timeout=TEST_S)
            if client.returncode == 0 and "avg_lat" in client.stdout:
                break
            if attempt == 199 or server.poll() is not None:
                sys.exit(f"ucx_perftest: {client.stdout}{client.stderr}")
        row = next(csv.DictReader(client.stdout[client.stdout.index("iterations,"):].splitlines()))
        return float(row["avg_lat"])
    finally:
        server.terminate()
        server.wait()


def main():
    _, _, operation, *sizes = sys.argv
    cores = sorted(os.sched_getaffinity(0))
    if operation != "send_recv" or os.environ["RANKS"] != "2" or len(cores) < 2:
        return
    for size in map(int, sizes):
        before = one_way_ns()
        calls, time = 20, 0
        while True:
            time = time_us(size, calls, cores)
            if 2 * calls * time >= LEAST_US:
                break
            calls = max(calls + 1, min(100 * calls, int(1.2 * LEAST_US / (2 * time))))
        print(json.dumps({"size": size, "time_us": time, "one_way_ns": [before, one_way_ns()]}), flush=True)


if __name__ == "__main__":
    main()
