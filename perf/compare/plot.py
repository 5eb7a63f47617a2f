"""Draws time over size: a panel for each operation that has several sizes and each number of ranks."""
import html
import math

from results import OURS, size_text

# Colours of Okabe and Ito (2008), which colour-blind readers can tell apart, and some between them.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#882255", "#f0e442", "#aa4499"]
LIMIT_COLOUR = "#000000"
WIDTH, HEIGHT, LEFT, TOP, ACROSS, DOWN = 300, 220, 70, 90, 380, 310  # pixels: panels, and distances between them
STYLE = """<style>
text { font-family: "DejaVu Sans", Verdana, Helvetica, sans-serif; font-size: 12px; fill: #222; }
.head { font-size: 19px; font-weight: bold; }
.title { font-weight: bold; }
.tick { font-size: 10px; fill: #444; }
.grid { stroke: #d4d4d4; }
.frame { fill: none; stroke: #888; }
polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
</style>
"""


class Panel:
    def __init__(self, left, top, lines):
        """`lines` are (colour, dashed, [(size, time in us), ...])."""
        self.left, self.top, self.lines = left, top, lines
        points = [point for _, _, line in lines for point in line]
        self.sizes = sorted({size for size, _ in points})
        self.first = math.floor(math.log10(min(time for _, time in points)))
        self.last = max(self.first + 1, math.ceil(math.log10(max(time for _, time in points))))

    def x(self, size):
        least, greatest = math.log(self.sizes[0]), math.log(self.sizes[-1])
        return self.left + WIDTH * (math.log(size) - least) / (greatest - least)

    def y(self, time_us):
        return self.top + HEIGHT * (1 - (math.log10(time_us) - self.first) / (self.last - self.first))

    def draw(self, title):
        bottom = self.top + HEIGHT
        svg = [f'<text class="title" x="{self.left}" y="{self.top - 10}">{html.escape(title)}</text>']
        for size in self.sizes:
            x = self.x(size)
            svg.append(f'<line class="grid" x1="{x:.1f}" y1="{self.top}" x2="{x:.1f}" y2="{bottom}"/>'
                       f'<text class="tick" text-anchor="end" transform="translate({x:.1f},{bottom + 14}) '
                       f'rotate(-35)">{size_text(size)}</text>')
        for power in range(self.first, self.last + 1):
            y = self.y(10**power)
            svg.append(f'<line class="grid" x1="{self.left}" y1="{y:.1f}" x2="{self.left + WIDTH}" y2="{y:.1f}"/>'
                       f'<text class="tick" text-anchor="end" x="{self.left - 6}" y="{y + 4:.1f}">{10**power:g}</text>')
        svg.append(f'<rect class="frame" x="{self.left}" y="{self.top}" width="{WIDTH}" height="{HEIGHT}"/>')
        for colour, dashed, line in self.lines:
            points = " ".join(f"{self.x(size):.1f},{self.y(time):.1f}" for size, time in line)
            dots = "".join(f'<circle cx="{self.x(size):.1f}" cy="{self.y(time):.1f}" r="2.6" fill="{colour}"/>'
                           for size, time in line if not dashed)
            svg.append(f'<polyline stroke="{colour}"{dashes(dashed)} points="{points}"/>{dots}')
        return "\n".join(svg)


def dashes(dashed):
    return ' stroke-dasharray="6 4"' if dashed else ""


def lines_of(summaries, sides):
    """Returns the curves of one panel: one for each side, and the machine's limit if it is known."""
    lines = []
    for colour, side in zip(COLOURS, sides):
        lines.append((colour, False, [(s.cell.size, s.time_us[side]) for s in summaries if side in s.time_us]))
    lines.append((LIMIT_COLOUR, True, [(s.cell.size, s.limit_us) for s in summaries if s.limit_us]))
    return [line for line in lines if line[2]]


def legend(entries, top):
    svg = []
    for i, (colour, dashed, label) in enumerate(entries):
        y = top + 20 * i
        svg.append(f'<polyline stroke="{colour}"{dashes(dashed)} points="{LEFT},{y} {LEFT + 30},{y}"/>'
                   f'<text x="{LEFT + 38}" y="{y + 4}">{html.escape(label)}</text>')
    return "\n".join(svg)


def to_svg(summaries, titles, subtitle):
    """Returns the picture. `titles` are the sides' titles by name, in the order of their colours. Returns None if there
    is no curve to draw."""
    sides = list(titles)
    assert sides[0] == OURS and len(sides) <= len(COLOURS)
    groups = {}
    for one in summaries:
        groups.setdefault((one.cell.ranks, one.cell.operation), []).append(one)
    groups = {key: group for key, group in groups.items() if len(group) > 1}
    if not groups:
        return None
    rows = list(dict.fromkeys(ranks for ranks, _ in groups))
    columns = list(dict.fromkeys(operation for _, operation in groups))
    panels = [Panel(LEFT + ACROSS * columns.index(operation), TOP + DOWN * rows.index(ranks),
                    lines_of(group, sides)).draw(f"{operation}, {ranks} ranks: us")
              for (ranks, operation), group in groups.items()]
    entries = [(colour, False, titles[side]) for colour, side in zip(COLOURS, sides)]
    entries.append((LIMIT_COLOUR, True, "the machine's limit (tutti-perf --limits)"))
    bottom = TOP + DOWN * len(rows)
    width, height = max(700, LEFT + ACROSS * len(columns)), bottom + 20 * len(entries)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}">\n{STYLE}<rect width="100%" height="100%" fill="#ffffff"/>\n'
            f'<text class="head" x="{LEFT}" y="32">tutti and its peers</text>\n'
            f'<text x="{LEFT}" y="54">{html.escape(subtitle)}</text>\n'
            + "\n".join(panels) + "\n" + legend(entries, bottom) + "\n</svg>\n")
