"""Evaluates the samples of a comparison: phases, medians, ratios, goals, baseline. Nothing is run here.

A sample is the measurement of one cell, an (operation, ranks, size), by one program:
{"side", "round", "operation", "ranks", "size", "time_us", "one_way_ns": [before, after]}.
"""
import collections
import dataclasses
import statistics

KI, MI = 1024, 1024 * 1024
OURS, LIMIT = "tutti", "limit"  # sides that are not peers
Cell = collections.namedtuple("Cell", "operation ranks size")

# On virtual machines siblings of one core were seen to take 30 ns, cores of one L3 55-75, cores farther apart 230-280.
PHASES = [(45, "< 45 ns"), (100, "45-100 ns"), (float("inf"), ">= 100 ns")]

# The goals for the ratio of tutti's time to that of the fastest peer, by the least and greatest size, for 2 and more
# ranks.
GOALS = [(0, 4 * KI, 0.7, 0.7), (16 * KI, 256 * KI, 0.5, 0.45), (MI, 256 * MI, 0.45, 0.45)]
GOAL_LIMITS = 1.35  # or within this factor of the machine's limit

# The goals for an all-reduce with 2 ranks as a multiple of the limit, by size, in the phase of 45 to 100 ns.
LIMIT_PHASE = "45-100 ns"
LIMIT_GOALS = {8: 1.7, KI: 3.5, 64 * KI: 1.8, MI: 1.35, 256 * MI: 1.3}

# The goals for an all-reduce between machines: its time over Open MPI's, or over the bare program's if that allows
# more; from LARGE bytes on, its time over the bare program's has a goal in any case.
MACHINES_GOAL, BARE, BARE_GOAL, LARGE, LARGE_GOAL = 0.7, "bare", 1.1, 16 * MI, 1 / 0.9
ONE_WAY_GOAL = 1.15  # for send_recv of 8 B, over the bare program's time

# --limits measures two things with two cores: both copy, half of it written by the other core; or one core copies what
# the other has written. An operation between 2 ranks takes at least that time, for the given part of its size.
EXCHANGE, ONE_WAY = "exchange", "one way"
LIMITS = {"all_reduce": (EXCHANGE, 1), "all_gather": (EXCHANGE, 1), "all_to_all": (EXCHANGE, 1),
          "reduce_scatter": (ONE_WAY, 2), "broadcast": (ONE_WAY, 1), "reduce": (ONE_WAY, 1), "send_recv": (ONE_WAY, 1)}


def phase(one_way_ns):
    return next(name for bound, name in PHASES if one_way_ns < bound)


def phase_of(sample):
    """Returns the phase of a sample; None if it changed during the measurement."""
    phases = {phase(ns) for ns in sample["one_way_ns"]}
    return phases.pop() if len(phases) == 1 else None


def cell_of(sample):
    return Cell(sample["operation"], sample["ranks"], sample["size"])


def limit_of(cell):
    """Returns the cell in which the limit of `cell` is measured; None if it has none."""
    if cell.ranks != 2 or cell.operation not in LIMITS:
        return None
    kind, part = LIMITS[cell.operation]
    return Cell(kind, 2, max(4, cell.size // part))


def size_text(size):
    if size >= MI:
        return f"{size // MI} MiB"
    return f"{size // KI} KiB" if size >= KI else f"{size} B"


def cell_text(cell):
    size = "" if cell.operation == "barrier" else f", {size_text(cell.size)}"
    return f"{cell.operation}{size}, {cell.ranks} ranks"


def cell_key(cell):
    """Returns the name of a cell in the baseline."""
    return f"{cell.operation} {cell.ranks} {cell.size}"


@dataclasses.dataclass
class Summary:
    """Medians of one cell, in the phase in which most sides were measured most often."""
    cell: Cell
    phase: str
    rounds: int  # of the side that has the fewest
    one_way_ns: float
    time_us: dict  # keyed by side
    limit_us: float = None

    @property
    def ratios(self):
        return {side: self.time_us[OURS] / time for side, time in self.time_us.items() if side != OURS}

    @property
    def best_peer(self):
        """Returns the fastest peer's name, and tutti's time over its time; None if there is no peer."""
        return max(self.ratios.items(), key=lambda item: item[1], default=None)


def by_phase(samples):
    """Returns {phase: {side: [sample, ...]}}, without samples in which the phase changed."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for sample in samples:
        if name := phase_of(sample):
            groups[name][sample["side"]].append(sample)
    return groups


def summarize(samples, cell):
    """Returns the summary of a cell; None if tutti was never measured within one phase."""
    groups = by_phase(sample for sample in samples if cell_of(sample) == cell)
    groups = {name: sides for name, sides in groups.items() if OURS in sides}
    if not groups:
        return None
    name, sides = max(groups.items(), key=lambda item: (len(item[1]), min(map(len, item[1].values()))))
    used = [sample for group in sides.values() for sample in group]
    limits = [sample["time_us"] for sample in samples if sample["side"] == LIMIT and phase_of(sample) == name
              and cell_of(sample) == limit_of(cell)]
    return Summary(cell, name, min(map(len, sides.values())),
                   statistics.median(ns for sample in used for ns in sample["one_way_ns"]),
                   {side: statistics.median(s["time_us"] for s in group) for side, group in sides.items()},
                   statistics.median(limits) if limits else None)


def wants_more(samples, cell, sides, rounds):
    """Returns whether a cell has fewer rounds of one phase than wanted from any of these sides."""
    groups = by_phase(sample for sample in samples if cell_of(sample) == cell)
    return not any(all(len(group.get(side, [])) >= rounds for side in sides) for group in groups.values())


def goal(cell):
    """Returns the goal of a cell; None for sizes between the classes."""
    for least, greatest, two_ranks, more_ranks in GOALS:
        if least <= cell.size <= greatest:
            return two_ranks if cell.ranks == 2 else more_ranks
    return None


def machines_verdict(summary):
    """Returns what verdict() returns, for ranks on several machines."""
    cell, bare = summary.cell, summary.ratios.get(BARE, float("inf"))
    peers = {side: ratio for side, ratio in summary.ratios.items() if side != BARE}
    if cell.operation == "send_recv" and cell.size == 8 and BARE in summary.ratios:
        return f"<= {ONE_WAY_GOAL} bare {'ok' if bare <= ONE_WAY_GOAL else 'MISSED'}"
    if not cell.operation.startswith("all_reduce") or not peers:
        return ""
    ok = min(max(peers.values()) / MACHINES_GOAL, bare / BARE_GOAL) <= 1
    if cell.size >= LARGE and BARE in summary.ratios:
        ok = ok and bare <= LARGE_GOAL
    return f"<= {MACHINES_GOAL} {'ok' if ok else 'MISSED'}"


def verdict(summary):
    """Returns "ok", "ok: near the limit" or "MISSED", or "" if there is no goal or no peer."""
    wanted = goal(summary.cell)
    if wanted is None or summary.best_peer is None:
        return ""
    if summary.best_peer[1] <= wanted:
        return "ok"
    near_limit = summary.limit_us is not None and summary.time_us[OURS] <= GOAL_LIMITS * summary.limit_us
    return "ok: near the limit" if near_limit else "MISSED"


def limit_text(summary):
    """Says what multiple of the limit tutti takes, and whether that reaches the goal."""
    if summary.limit_us is None:
        return ""
    times = summary.time_us[OURS] / summary.limit_us
    bound = LIMIT_GOALS.get(summary.cell.size) if summary.cell.operation == "all_reduce" else None
    if bound is None or summary.phase != LIMIT_PHASE:
        return f"{times:.2f} limits"
    return f"{times:.2f} limits <= {bound:.2f} {'ok' if times <= bound else 'MISSED'}"


def number(value):
    """Formats a number with two digits after the point, or three if it is small."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 0.01 else f"{value:.4f}"[1:]


def table(summaries, sides, machines=1):
    """Returns a row for each summary: tutti's time; each peer's time and tutti's ratio to it; the goal."""
    peers = [side for side in sides if side != OURS]
    lines = ["ranks  operation                size  rounds  phase         tutti us"
             + "".join(f"{peer + ' us':>16} ratio" for peer in peers) + "    limit    best  goal"]
    for one in summaries:
        size = "" if one.cell.operation == "barrier" else size_text(one.cell.size)
        row = (f"{one.cell.ranks:5}  {one.cell.operation:20} {size:>8}  {one.rounds:6}  {one.phase:11}"
               f"{number(one.time_us[OURS]):>11}")
        for peer in peers:
            row += f"{number(one.time_us.get(peer)):>16} {number(one.ratios.get(peer)):>5}"
        row += f"{number(one.limit_us):>9}{number(one.best_peer and one.best_peer[1]):>8}"
        if machines > 1:
            lines.append(f"{row}  {machines_verdict(one)}".rstrip())
            continue
        said = verdict(one)
        row += f"  <= {goal(one.cell):.2f} {said}" if said else ""
        lines.append(f"{row}  {limit_text(one)}".rstrip())
    return "\n".join(lines)


def behind(summaries):
    """Returns lines about cells in which a peer is faster than tutti, the worst first."""
    slower = [one for one in summaries if one.best_peer and one.best_peer[1] > 1]
    return [f"{cell_text(one.cell)}: {number(one.best_peer[1])} times {one.best_peer[0]} "
            f"({number(one.time_us[OURS])} us, {number(one.time_us[one.best_peer[0]])})"
            for one in sorted(slower, key=lambda one: -one.best_peer[1])]


def to_baseline(summaries):
    return {cell_key(one.cell): {"phase": one.phase, "ratios": {s: round(r, 3) for s, r in one.ratios.items()}}
            for one in summaries if one.ratios}


def check(summaries, baseline, tolerance):
    """Returns (compared, worse, skipped): the number of ratios compared, lines about those that grew beyond the
    tolerance, and lines about those that could not be compared."""
    compared, worse, skipped = 0, [], []
    for one in summaries:
        kept = baseline.get(cell_key(one.cell))
        if kept is None or kept["phase"] != one.phase:
            why = "not in the baseline" if kept is None else f"phase {one.phase}, in the baseline {kept['phase']}"
            skipped.append(f"{cell_text(one.cell)}: {why}")
            continue
        for peer, ratio in one.ratios.items():
            if peer not in kept["ratios"]:
                skipped.append(f"{cell_text(one.cell)}: {peer} is not in the baseline")
                continue
            compared += 1
            expected = kept["ratios"][peer]
            if ratio > expected * (1 + tolerance):
                worse.append(f"{cell_text(one.cell)}: {ratio:.2f} times {peer}, {expected:.2f} in the baseline")
    return compared, worse, skipped
