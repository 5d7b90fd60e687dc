"""Rows as a table for people: per case, mode and clock, the fastest first."""

import itertools

from .measure import MEASURABLE, MODES

_CLOCKS = list(MEASURABLE["cuda"])


def _group(row):
    """Rows that took turns and mean the same. A copy is recorded by nobody, whatever it stands beside."""
    return _CLOCKS.index(row.clock), MODES.index(row.mode), row.grad and row.mode == "forward"


def best_peer(row, rows):
    """The peer that a row of brim's is held against: the fastest; in place, the fastest of those that work in place."""
    peers = [r for r in rows if r.op == row.op and r.provider not in ("brim", "copy")]
    same = [r for r in peers if r.in_place] if row.in_place else []
    return min(same or peers, key=lambda r: r.time.median, default=None)


def _lines(rows):
    yardstick = next((r for r in rows if r.op != rows[0].op), None)
    for row in sorted(rows, key=lambda r: (r.provider == "copy", r.time.median)):
        name = row.title if row is not yardstick else f"{row.provider} {row.op}"
        if row.provider == "copy":
            note = row.path
        elif row.provider == "brim":
            peer = best_peer(row, rows)
            note = f"{row.path}; {peer.title} takes {peer.time.median / row.time.median:.2f}x" if peer else row.path
            if yardstick:
                note += f"; {row.time.median / yardstick.time.median:.2f}x of {yardstick.provider} {yardstick.op}"
        else:
            note = ""
        queued = row.wall_time is None
        yield (
            name,
            f"{row.time.median:.1f}",
            f"{row.time.p20:.1f}-{row.time.p80:.1f}",
            "" if queued else f"{row.bytes / row.time.median / 1e3:.0f}",
            "" if queued else f"{row.wall_fraction:.2f}",
            note,
        )


def text(case, rows):
    """The rows of one case."""
    parts = []
    for (clock, mode, grad), group in itertools.groupby(sorted(rows, key=_group), _group):
        recorded = ", recorded by autograd" if grad else ""
        lines = [("", "us", "p20-p80", "GB/s", "of wall", ""), *_lines(list(group))]
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        parts.append(f"{case}, {MODES[mode]}{recorded}, clock {_CLOCKS[clock]}")
        for name, *numbers, note in lines:
            cells = [name.ljust(widths[0]), *(n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True))]
            parts.append(("  " + "  ".join(cells) + "  " + note).rstrip())
    return "\n".join(parts)
