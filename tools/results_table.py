#!/usr/bin/env python3
"""Fills the tables of measured rows in Markdown pages from the rows that are committed.

    tools/results_table.py [--check] PAGE...

Between a line `<!-- rows: FILE key=value,... -->` and the next `<!-- /rows -->` stands a table of the rows of FILE (a path
from the repository's root) for which every key, of the row or of its shape, has one of its values (`a|b`), by default brim's own:

    <!-- rows: bench/results/rope-h200.json mode=forward in_place=false dtype=bfloat16|float32 cells=time -->

One line a shape (with lines=dtype a shape and dtype), one column a combination of mode, dtype, layout and place that differs.
A cell is the fraction of the best plain copy of the same bytes in the same run; with cells=time the median in microseconds
comes before it. --check changes nothing and fails where a page is not what its rows say.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- rows: (\S+)(.*?) -->\n).*?(<!-- /rows -->)", re.S)
ROWS = ("rows x hidden", lambda s: f"{s['rows']} x {s['hidden']}", lambda s: (s["hidden"], s["rows"]))
SHAPES = {  # by op: how the lines are titled, how one names a shape, and their order
    "rope": (
        "heads x head dim",
        lambda s: f"({s['heads']}+{s['kv_heads']}) x {s['head_dim']}",
        lambda s: (s["tokens"], s["head_dim"]),
    ),
    "rms_norm": ROWS,
    "add_rms_norm": ROWS,
}


def plain(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def place(row):
    return "in place" if row["in_place"] else "out of place"


def table(file, options):
    wanted = dict(option.split("=", 1) for option in options.split())
    timed = wanted.pop("cells", "fraction") == "time"
    by_dtype = wanted.pop("lines", "") == "dtype"
    wanted.setdefault("provider", "brim")
    rows = [
        row
        for row in json.loads((ROOT / file).read_text())["benchmarks"]
        if all(plain(row["shape"].get(key, row.get(key))) in values.split("|") for key, values in wanted.items())
    ]
    if not rows:
        sys.exit(f"results_table: no row of {file} has {wanted}")
    title, name_of, order_of = SHAPES[rows[0]["op"]]
    parts = [lambda row: row["mode"], lambda row: "" if by_dtype else row["dtype"], lambda row: row["layout"], place]
    parts = [part for part in parts if len({part(row) for row in rows}) > 1]
    lines, columns = {}, {}
    for row in rows:
        column = ", ".join(part(row) for part in parts) or "all"
        cell = f"{row['wall_fraction']:.2f}"
        if timed:
            cell = f"{row['real_time']:.1f}, {cell}"
        columns.setdefault(column)
        name = name_of(row["shape"]) + (f", {row['dtype']}" if by_dtype else "")
        cells = lines.setdefault((*order_of(row["shape"]), row["shape"].get("tokens"), name), {})
        if column in cells:
            sys.exit(f"results_table: {file} has two rows for {name}, {column}; name more keys")
        cells[column] = cell
    several = len({tokens for *_, tokens, _ in lines}) > 1
    text = [f"| {'tokens, ' if several else ''}{title} | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    for (*_, tokens, name), cells in sorted(lines.items()):
        label = f"{tokens}, {name}" if several else name
        text.append(f"| {label} | {' | '.join(cells.get(column, '') for column in columns)} |")
    return "\n".join(text) + "\n"


def main(arguments):
    check = "--check" in arguments
    pages = [Path(a) for a in arguments if a != "--check"]
    if not pages:
        sys.exit(__doc__.strip())
    stale = False
    for page in pages:
        text = page.read_text()
        new = BLOCK.sub(lambda m: m[1] + table(m[2], m[3]) + m[4], text)
        if new == text:
            continue
        if check:
            stale = True
            print(f"{page}: a table is not what its rows say; run tools/results_table.py {page}")
        else:
            page.write_text(new)
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
