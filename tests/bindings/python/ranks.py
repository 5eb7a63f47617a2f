"""Runs ranks that are threads of this process."""

import threading

import tutti


def on_ranks(size, body):
    """Runs body(communicator) on ranks that are threads, and returns what each raised."""
    raised = [None] * size

    def rank(comm):
        try:
            with comm:
                body(comm)
        except Exception as error:
            raised[number[id(comm)]] = error

    ranks = tutti.Communicator.in_process(size, timeout=20)
    number = {id(comm): comm.rank for comm in ranks}
    threads = [threading.Thread(target=rank, args=(comm,)) for comm in ranks]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return raised
