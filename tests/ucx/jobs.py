#!/usr/bin/env python3
"""Runs jobs of real processes over UCX, on the loopback interface, and what can go wrong with them.

usage: tests/ucx/jobs.py <worker> [name ...]

Prints a line for each case, and at last how many have passed, failed and been skipped.
"""

import os
import pathlib
import re
import signal
import socket
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rdma"))
import real  # noqa: E402
from real import demand, figures  # noqa: E402


def job(worker, **options):
    """Returns a job over UCX, unless the options name other transports."""
    settings = {"TUTTI_TRANSPORTS": "ucx", "TUTTI_RDMA_DEVICES": "auto", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo",
                "UCX_WARN_UNUSED_ENV_VARS": "n", "TUTTI_TRUST_NETWORK": "yes"}
    return real.Job(worker, **{**settings, **options})


def two_ranks(worker):
    with job(worker) as ranks:
        ranks.all_right()


def a_network_that_is_not_said_to_be_trusted_is_warned_of(worker):
    with job(worker, rounds=3, TUTTI_TRUST_NETWORK="no") as ranks:
        for text in ranks.all_right():
            demand("whoever reaches its port" in text, f"it is not warned of: {text}")


def five_ranks(worker):
    with job(worker, ranks=5, rounds=5) as ranks:
        ranks.all_right()


def buffers_are_read_in_place(worker):
    rounds, elements = 3, (4 << 20) // 8
    with job(worker, rounds=rounds, elements=elements, more=["buffers"], TUTTI_LOG_LEVEL="debug") as ranks:
        sender, receiver = [figures(text) for text in ranks.all_right()]
    demand(sender[0] < 4096 and receiver[0] < 4096, f"in slots were {sender[0]} and {receiver[0]} bytes")
    demand(receiver[1] >= rounds * 6 << 20, f"rank 1 has read {receiver[1]} bytes")
    demand(sender[3:] == receiver[3:] == [0, 0], f"declined or refused: {sender}, {receiver}")


def a_killed_rank_is_lost(worker):
    with job(worker, rounds=1_000_000) as ranks:
        ranks.begin()
        ranks.ranks[1].kill()
        status, text, _ = ranks.end_of(0)
        demand(status == 3 and text.startswith("peer_lost") and "rank 1" in text, f"rank 0 ended with {status}: {text}")


def a_frozen_rank_is_a_timeout_that_names_it(worker):
    for more in [[], ["buffers"]]:
        with job(worker, rounds=1_000_000, elements=200_000, more=more, TUTTI_TIMEOUT_MS="3000") as ranks:
            ranks.begin()
            ranks.ranks[1].send_signal(signal.SIGSTOP)
            status, text, _ = ranks.end_of(0)
            demand(status == 3 and text.startswith("timeout") and "rank 1" in text, f"rank 0 ended with {status}: {text}")


def encryption_that_is_asked_for_is_never_left_out(worker):
    with job(worker, rounds=3, TUTTI_TLS="yes") as ranks:
        ranks.all_fail("unavailable", "TUTTI_TLS")
    with job(worker, rounds=3, TUTTI_TRANSPORTS="ucx,tcp", TUTTI_TLS="yes", TUTTI_LOG_LEVEL="info") as ranks:
        for text in ranks.all_right():
            demand("ucx does not join it" in text and "TUTTI_TLS" in text, f"it does not say why: {text}")


def too_few_descriptors_are_said_before_ucx_ends_the_process(worker):
    for limit in (36, 42, 60):
        # UBSan checks the types of objects through a pipe, for which there may be no descriptor left.
        options = f"{os.environ.get('UBSAN_OPTIONS', '')}:suppressions={pathlib.Path(__file__).with_name('few_descriptors.supp')}"
        with job(worker, rounds=3, before=["prlimit", f"--nofile={limit}"], UBSAN_OPTIONS=options) as ranks:
            ranks.all_fail("unavailable", "ulimit -n too low")


def ranks_go_on_with_one_that_has_no_libucp(worker):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "libucp.so.0").touch()
        for rank in (0, 1):
            with job(worker, ranks=3, rounds=100, TUTTI_TRANSPORTS="ucx,tcp", of_rank={rank: {"LD_LIBRARY_PATH": folder}}) as ranks:
                ranks.all_right()


def shared_memory_that_is_named_behind_ucx_joins_those_whom_ucx_does_not(worker):
    for tls in ("nonsense", "sm"):
        with job(worker, rounds=3, TUTTI_TRANSPORTS="ucx,shm", TUTTI_LOG_LEVEL="info", UCX_TLS=tls) as ranks:
            for text in ranks.all_right():
                demand("ucx" in text, f"it does not say why not by UCX: {text}")


def without_libucp_the_library_runs_and_says_so(worker):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "libucp.so.0").touch()  # the loader finds it first, and cannot load it
        with job(worker, rounds=3, TUTTI_TRANSPORTS="ucx,tcp", TUTTI_LOG_LEVEL="info", LD_LIBRARY_PATH=folder) as ranks:
            for text in ranks.all_right():
                demand("reaches 1 by tcp" in text and "libucp" in text, f"not by TCP, or it does not say why: {text}")
        with job(worker, rounds=3, LD_LIBRARY_PATH=folder) as ranks:
            ranks.all_fail("unavailable", "UCX needs libucp, which cannot be loaded")


def devices_that_are_not_there_are_said_and_leave_the_ranks_to_tcp(worker):
    with job(worker, rounds=3, TUTTI_TRANSPORTS="ucx,tcp", UCX_NET_DEVICES="none0", UCX_TLS="tcp") as ranks:
        ranks.all_right()
    with job(worker, rounds=3, UCX_NET_DEVICES="none0", UCX_TLS="tcp") as ranks:
        ranks.all_fail("unavailable", "it cannot use any device")


def it_is_not_taken_by_itself_where_it_would_go_over_tcp(worker):
    with job(worker, rounds=3, TUTTI_TRANSPORTS="auto", TUTTI_RDMA_DEVICES="none", TUTTI_LOG_LEVEL="info") as ranks:
        for text in ranks.all_right():
            demand("TUTTI_TRANSPORTS=ucx takes it" in text, f"it does not say why: {text}")


def strangers_at_the_ports_of_ucx_change_nothing(worker):
    with job(worker, rounds=200, elements=20_000) as ranks:
        ranks.begin()
        ports = {port for rank in ranks.ranks for port in listening(rank.pid)}
        demand(ports, "no rank listens")
        for port in ports:
            for bytes_sent in [b"", b"GET / HTTP/1.0\r\n\r\n", bytes(64), os.urandom(4096)]:
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
                        stranger.sendall(bytes_sent)
                except OSError:  # The port has been closed, or UCX has closed the connection.
                    pass
        ranks.all_right()


def listening(pid):
    """Returns the TCP ports at which a process listens."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry))
        except OSError:
            continue
        if found:
            inodes.add(found.group(1))
    lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return [int(fields[1].split(":")[1], 16) for fields in map(str.split, lines) if fields[3] == "0A" and fields[9] in inodes]


CASES = [two_ranks, a_network_that_is_not_said_to_be_trusted_is_warned_of, five_ranks, buffers_are_read_in_place, a_killed_rank_is_lost, a_frozen_rank_is_a_timeout_that_names_it,
         encryption_that_is_asked_for_is_never_left_out, without_libucp_the_library_runs_and_says_so,
         too_few_descriptors_are_said_before_ucx_ends_the_process, ranks_go_on_with_one_that_has_no_libucp, shared_memory_that_is_named_behind_ucx_joins_those_whom_ucx_does_not,
         devices_that_are_not_there_are_said_and_leave_the_ranks_to_tcp, it_is_not_taken_by_itself_where_it_would_go_over_tcp,
         strangers_at_the_ports_of_ucx_change_nothing]

if __name__ == "__main__":
    sys.exit(real.main(CASES))
