"""Algorithms of a program's own: written in Python, proved before they move a byte, and run on any transport.

    import tutti
    from tutti import schedule

    def star(request):                            # an all_reduce by way of rank 0
        plan = schedule.ScheduleBuilder(request)
        lane = plan.lane()
        if request.rank == 0:
            lane.reduce_copy_send(schedule.in_rank_order(request, 0), 0, list(range(1, request.ranks))).completes()
        else:
            lane.send(0, [0])
            lane.receive(0, 0)
        return plan.finish()

    all_ranks = schedule.of_all_ranks(star, "all_reduce", 4)
    print(all_ranks[0], schedule.verify(all_ranks))

    comm.add_algorithm("star", star)              # on every rank
    comm.all_reduce(array, algorithm="star")
"""

from ._core import (
    Lane,
    Operand,
    PlanRequest,
    Schedule,
    ScheduleBuilder,
    Step,
    Verdict,
    in_rank_order,
    input,
    output,
    peer,
    scratch,
    to_dot,
    verify,
)

__all__ = [
    "Lane",
    "Operand",
    "PlanRequest",
    "Schedule",
    "ScheduleBuilder",
    "Step",
    "Verdict",
    "in_rank_order",
    "input",
    "of_all_ranks",
    "output",
    "peer",
    "scratch",
    "to_dot",
    "verify",
]


def of_all_ranks(planner, operation, ranks, root=0, groups=(), places=()):
    """Returns the schedules of all ranks, as `planner` plans them."""
    return [planner(PlanRequest(operation, rank, ranks, root, list(groups), list(places))) for rank in range(ranks)]
