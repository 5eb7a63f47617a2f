#!/usr/bin/env python3
"""Runs jobs of real processes over RDMA, and what can go wrong with them. It needs root and the devices of vm.py.

usage: tests/rdma/real.py <worker> [name ...]

Each rank uses soft-RoCE devices of its own, so that what the ranks send each other passes cables on which
`ip link` and `tc` act: one device, or two where a case says so. Prints a line for each case, and at last how many have passed, failed and been skipped.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

PATIENCE_S = 120
DEVICE_FILES = pathlib.Path("/dev/infiniband")
# A user without rights of root's, for whom limits hold.
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all"]


class Failed(Exception):
    pass


def demand(what, text):
    if not what:
        raise Failed(text)


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


class Job:
    """The ranks of one job. Those that are left are killed at its end."""

    def __init__(self, worker, ranks=2, rounds=20, elements=50_000, before=(), limit=None, more=(), of_rank=None, **settings):
        """`of_rank` maps ranks to settings of their own."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.ranks = []
        for rank in range(ranks):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                               MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TUTTI_SECRET="the secret of this job",
                               TUTTI_TRANSPORTS="rdma", TUTTI_RDMA_DEVICES=f"rxe{rank % 2}", TUTTI_TIMEOUT_MS="60000")
            environment.update(settings)
            environment.update((of_rank or {}).get(rank, {}))
            command = [*before, worker, str(rounds), str(elements), *more]
            if limit is not None:
                command = ["prlimit", f"--memlock={limit}", *command]
            self.ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in self.ranks:
            rank.kill()
            rank.communicate()

    def begin(self):
        """Waits until each rank has done a round."""
        for rank in self.ranks:
            line = rank.stdout.readline()
            demand(line == "ready\n", f"a rank says {line.strip()!r} in place of 'ready'")

    def end_of(self, rank):
        """Returns the exit status of a rank, what it has said, and how long that took."""
        begin = time.monotonic()
        try:
            text, _ = self.ranks[rank].communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"rank {rank} has not ended after {PATIENCE_S} s") from None
        return self.ranks[rank].returncode, text.strip(), time.monotonic() - begin

    def all_right(self):
        """Returns what each rank has said."""
        texts = []
        for rank in range(len(self.ranks)):
            status, text, _ = self.end_of(rank)
            demand(status == 0, f"rank {rank} ended with {status}: {text}")
            texts.append(text)
        return texts

    def all_fail(self, *words):
        for rank in range(len(self.ranks)):
            status, text, _ = self.end_of(rank)
            demand(status == 3 and all(word in text for word in words), f"rank {rank} ended with {status}: {text}")


def two_devices_over_a_cable(worker):
    with Job(worker) as job:
        job.all_right()


def four_ranks(worker):
    with Job(worker, ranks=4, rounds=5) as job:
        job.all_right()


FIGURES = re.compile(r"(?:RDMA|UCX): (\d+) bytes were sent through slots and (\d+) read in place; (\d+) messages were offered, (\d+) of them "
                     r"declined; .* refused (\d+) times")


def figures(text):
    """Returns what the log says at the end: bytes in slots, bytes read, offers, declined, refused registrations."""
    found = FIGURES.search(text)
    demand(found, f"no figures are in the log: {text}")
    return [int(figure) for figure in found.groups()]


def buffers_of_4_mib_touch_no_slot(worker):
    rounds, elements = 3, (4 << 20) // 8
    with Job(worker, rounds=rounds, elements=elements, more=["buffers"], TUTTI_LOG_LEVEL="debug") as job:
        sender, receiver = [figures(text) for text in job.all_right()]
    # Each round is a message of 4 MiB, and an all_reduce in place, in which each rank reads what it reduces.
    demand(sender[0] < 4096 and receiver[0] < 4096, f"in slots were {sender[0]} and {receiver[0]} bytes")
    demand(receiver[1] >= rounds * 6 << 20, f"rank 1 has read {receiver[1]} bytes")
    demand(sender[1] >= rounds * 2 << 20, f"rank 0 has read {sender[1]} bytes")
    demand(sender[3:] == receiver[3:] == [0, 0], f"declined or refused: {sender}, {receiver}")


def buffers_that_may_not_be_locked_are_copied(worker):
    run("chmod", "-R", "a+rwX", str(DEVICE_FILES))
    with Job(worker, rounds=3, elements=(4 << 20) // 8, more=["buffers"], before=NOBODY, limit=3 << 20, TUTTI_LOG_LEVEL="debug") as job:
        for text in job.all_right():
            slots, _, _, _, refused = figures(text)
            demand(refused > 0 and slots > 0, f"it was not refused: {text}")
            demand(text.count("copied through slots") == 1, f"the log does not say so once: {text}")


def a_network_that_loses_and_delays(worker):
    for interface in ["veth0", "veth1"]:
        run("tc", "qdisc", "add", "dev", interface, "root", "netem", "loss", "0.5%", "delay", "2ms")
    try:
        with Job(worker, rounds=4, elements=20_000) as job:
            job.all_right()
    finally:
        for interface in ["veth0", "veth1"]:
            run("tc", "qdisc", "del", "dev", interface, "root")


def a_killed_rank_is_lost_at_once(worker):
    with Job(worker, rounds=1_000_000) as job:
        job.begin()
        job.ranks[1].kill()
        status, text, seconds = job.end_of(0)
        demand(status == 3 and text.startswith("peer_lost") and "rank 1" in text, f"rank 0 ended with {status}: {text}")
        demand(seconds < 15, f"rank 0 noticed it after {seconds:.1f} s")


def a_frozen_rank_is_a_timeout_that_names_it(worker):
    with Job(worker, rounds=1_000_000, TUTTI_TIMEOUT_MS="3000") as job:
        job.begin()
        job.ranks[1].send_signal(signal.SIGSTOP)
        status, text, seconds = job.end_of(0)
        demand(status == 3 and text.startswith("timeout") and "rank 1" in text, f"rank 0 ended with {status}: {text}")
        demand(seconds < 20, f"rank 0 noticed it after {seconds:.1f} s")


# The two ranks, with two cables between them.
TWO_CABLES = {0: {"TUTTI_RDMA_DEVICES": "rxe0,rxe2"}, 1: {"TUTTI_RDMA_DEVICES": "rxe1,rxe3"}}


def sent_by(interface):
    return int(pathlib.Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def long_messages_use_two_cables(worker):
    before = [sent_by("veth0"), sent_by("veth2")]
    with Job(worker, rounds=30, elements=(1 << 20) // 8, of_rank=TWO_CABLES) as job:
        job.all_right()
    sent = [sent_by(interface) - was for interface, was in zip(["veth0", "veth2"], before)]
    demand(min(sent) > sum(sent) * 0.25, f"over the two cables went {sent} bytes")


def goes_on(worker, why, now, fault, mend, **settings):
    """Runs a job in which a fault happens: it ends well, and both ranks say why and which path they use now."""
    with Job(worker, rounds=500 if "of_rank" in settings else 60, elements=20_000, **settings) as job:
        job.begin()
        if "of_rank" in settings:
            time.sleep(1)  # the second path is made
        run(*fault)
        try:
            texts = job.all_right()
        finally:
            run(*mend)
    for rank, text in enumerate(texts):
        demand("has failed: " in text and f"over {now[rank]} now" in text, f"rank {rank} does not say so: {text}")
    demand(any(why in text for text in texts), f"no rank says why: {texts}")


def cut(interface):
    return [["tc", "qdisc", action, "dev", interface, "root"] + more
            for action, more in [("add", ["netem", "loss", "100%"]), ("del", [])]]


def put_down(interface):
    return [["ip", "link", "set", interface, state] for state in ["down", "up"]]


def a_cable_that_is_cut_leaves_the_ranks_to_the_control_connection(worker):
    goes_on(worker, "retry counter exceeded", ["TCP", "TCP"], *cut("veth1"))


def a_port_that_goes_down_leaves_the_ranks_to_the_control_connection(worker):
    goes_on(worker, "", ["TCP", "TCP"], *put_down("veth1"))
    time.sleep(2)  # the port comes up again


def one_of_two_cables_that_is_cut_leaves_the_other(worker):
    goes_on(worker, "retry counter exceeded", ["rxe0/1", "rxe1/1"], *cut("veth3"), of_rank=TWO_CABLES)


def one_of_two_ports_that_goes_down_leaves_the_other(worker):
    goes_on(worker, "", ["rxe0/1", "rxe1/1"], *put_down("veth3"), of_rank=TWO_CABLES)
    time.sleep(2)


def buffers_outlive_a_port_that_goes_down(worker):
    goes_on(worker, "", ["rxe2/1", "rxe3/1"], *put_down("veth1"), of_rank=TWO_CABLES, more=["buffers"])
    time.sleep(2)


def a_cable_that_is_cut_for_a_second_changes_nothing(worker):
    run("tc", "qdisc", "add", "dev", "veth1", "root", "netem", "loss", "0%")
    try:
        with Job(worker, rounds=100, elements=20_000) as job:
            job.begin()
            run("tc", "qdisc", "change", "dev", "veth1", "root", "netem", "loss", "100%")
            time.sleep(1)
            run("tc", "qdisc", "change", "dev", "veth1", "root", "netem", "loss", "0%")
            job.all_right()
    finally:
        run("tc", "qdisc", "del", "dev", "veth1", "root")


def devices_that_do_not_reach_each_other_leave_the_ranks_to_tcp(worker):
    for interface in ["veth0", "veth1"]:
        run("tc", "qdisc", "add", "dev", interface, "root", "netem", "loss", "100%")
    try:
        with Job(worker, rounds=3, TUTTI_TRANSPORTS="rdma,tcp") as job:
            job.all_right()
        with Job(worker, rounds=3) as job:
            job.all_fail("unavailable", "rdma: it did not connect them: rank ")
    finally:
        for interface in ["veth0", "veth1"]:
            run("tc", "qdisc", "del", "dev", interface, "root")


def too_little_locked_memory_is_said_and_leaves_the_ranks_to_tcp(worker):
    run("chmod", "-R", "a+rwX", str(DEVICE_FILES))
    with Job(worker, rounds=3, before=NOBODY, limit=65536, TUTTI_TRANSPORTS="rdma,tcp") as job:
        job.all_right()
    with Job(worker, rounds=3, before=NOBODY, limit=65536) as job:
        job.all_fail("unavailable", "limit of locked memory is 64 KiB")


def devices_that_may_not_be_opened_are_said_and_leave_the_ranks_to_tcp(worker):
    run("chmod", "-R", "go-rwx", str(DEVICE_FILES))
    with Job(worker, rounds=3, before=NOBODY, TUTTI_TRANSPORTS="rdma,tcp") as job:
        job.all_right()
    with Job(worker, rounds=3, before=NOBODY) as job:
        job.all_fail("unavailable", "cannot open the RDMA device")


def encryption_that_is_asked_for_is_never_left_out(worker):
    with Job(worker, rounds=3, TUTTI_TLS="yes") as job:
        job.all_fail("unavailable", "TUTTI_TLS")


def without_libibverbs_the_library_runs(worker):
    library = next(pathlib.Path("/usr/lib").glob("*/libibverbs.so.1"))
    library.rename(f"{library}.away")
    try:
        with Job(worker, rounds=3, TUTTI_TRANSPORTS="rdma,tcp") as job:
            job.all_right()
        with Job(worker, rounds=3) as job:
            job.all_fail("unavailable", "libibverbs")
    finally:
        pathlib.Path(f"{library}.away").rename(library)


CASES = [two_devices_over_a_cable, four_ranks, buffers_of_4_mib_touch_no_slot, buffers_that_may_not_be_locked_are_copied,
         a_network_that_loses_and_delays, a_killed_rank_is_lost_at_once,
         a_frozen_rank_is_a_timeout_that_names_it, a_cable_that_is_cut_for_a_second_changes_nothing,
         a_cable_that_is_cut_leaves_the_ranks_to_the_control_connection,
         a_port_that_goes_down_leaves_the_ranks_to_the_control_connection, long_messages_use_two_cables,
         one_of_two_cables_that_is_cut_leaves_the_other, one_of_two_ports_that_goes_down_leaves_the_other,
         buffers_outlive_a_port_that_goes_down,
         devices_that_do_not_reach_each_other_leave_the_ranks_to_tcp,
         too_little_locked_memory_is_said_and_leaves_the_ranks_to_tcp,
         devices_that_may_not_be_opened_are_said_and_leave_the_ranks_to_tcp,
         encryption_that_is_asked_for_is_never_left_out, without_libibverbs_the_library_runs]


def main(cases):
    worker, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    passed = failed = 0
    for case in cases:
        if names and not any(name in case.__name__ for name in names):
            continue
        begin = time.monotonic()
        try:
            case(worker)
            passed += 1
            print(f"  ok    {case.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except (Failed, subprocess.CalledProcessError, OSError) as error:
            failed += 1
            print(f"FAILED  {case.__name__}: {error}", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main(CASES))
