"""Runs ranks that are threads of this process."""

import threading

import tutti


def run(size, body, timeout=60.0, **settings):
    """Runs body(communicator) on `size` ranks, each in a thread, and raises the first exception of a rank."""
    outcomes = [None] * size

    def rank(comm):
        try:
            with comm:
                outcomes[number[id(comm)]] = (True, body(comm))
        except BaseException as error:
            outcomes[number[id(comm)]] = (False, error)

    ranks = tutti.Communicator.in_process(size, timeout=timeout, **settings)
    number = {id(comm): comm.rank for comm in ranks}
    threads = [threading.Thread(target=rank, args=(comm,)) for comm in ranks]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for good, outcome in outcomes:
        if not good:
            raise outcome
    return [outcome for _, outcome in outcomes]
