"""Rows as files: Google Benchmark's JSON with brim's own fields, and CSV; the same as `brim bench` writes."""

import csv
import datetime
import io
import json
import sys


def shape_text(shape, separator):
    return separator.join(f"{name}:{size}" for name, size in shape.items())


def row_name(row):
    parts = [row.op, row.mode, row.provider, row.path, row.dtype, shape_text(row.shape, "/"), row.layout, row.clock]
    parts += ["in_place"] * row.in_place + ["grad"] * (row.grad and row.mode == "forward")
    return "/".join(part for part in parts if part)


def _object(row):
    name = row_name(row)
    return {
        "name": name,
        "run_name": name,
        "run_type": "iteration",
        "repetitions": 1,
        "repetition_index": 0,
        "threads": 1,
        "iterations": row.samples,
        "real_time": row.time.median,
        "cpu_time": row.time.median,
        "time_unit": "us",
        "op": row.op,
        "mode": row.mode,
        "provider": row.provider,
        "path": row.path,
        "device": row.device,
        "dtype": row.dtype,
        "shape": row.shape,
        "layout": row.layout,
        "in_place": row.in_place,
        "grad": row.grad,
        "clock": row.clock,
        "p20": row.time.p20,
        "p80": row.time.p80,
        "bytes": row.bytes,
        "wall_time": row.wall_time,
        "wall_fraction": row.wall_fraction,
        "peak_bytes": row.peak_bytes,
    }


def to_json(rows, device, versions, left_out):
    """left_out: (what, why) of everything that has no row."""
    now = datetime.datetime.now(datetime.timezone.utc)
    context = {
        "device": device,
        "versions": versions,
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": " ".join(["python -m brim.bench", *sys.argv[1:]]),
        "left_out": [{"what": what, "why": why} for what, why in left_out],
    }
    return json.dumps({"context": context, "benchmarks": [_object(row) for row in rows]}, indent=1) + "\n"


_CSV_HEAD = (
    "op,mode,provider,path,device,dtype,shape,layout,in_place,grad,clock,median_us,p20_us,p80_us,bytes,gbps,wall_us,"
    "wall_fraction,peak_bytes"
).split(",")


def to_csv(rows):
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(_CSV_HEAD)
    for row in rows:
        wall = ("", "") if row.wall_time is None else (f"{row.wall_time:.3f}", f"{row.wall_fraction:.4f}")
        lines.writerow(
            [row.op, row.mode, row.provider, row.path, row.device, row.dtype, shape_text(row.shape, " "), row.layout]
            + [str(flag).lower() for flag in (row.in_place, row.grad)]
            + [row.clock, *(f"{t:.3f}" for t in row.time), row.bytes, f"{row.bytes / row.time.median / 1e3:.1f}"]
            + [*wall, row.peak_bytes]
        )
    return text.getvalue()


def check_writable(path):
    """Before the run, whose rows would be lost afterwards. A file that is there keeps its content."""
    if path != "-":
        try:
            open(path, "a").close()
        except OSError as error:
            sys.exit(f"brim.bench: cannot write {path}: {error.strerror}")


def write(path, text):
    """`path` "-" is the standard output."""
    if path == "-":
        sys.stdout.write(text)
    else:
        with open(path, "w") as file:
            file.write(text)
