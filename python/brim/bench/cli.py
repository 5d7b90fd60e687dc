"""The command line of python -m brim.bench."""

import argparse
import contextlib
import platform
import re
import sys
import time

import torch

import brim

from . import norms, providers, rope, rows, table
from .measure import MEASURABLE, MODES, Measurement
from .timing import make_clocks, reason

OPS = {op.NAME: op for op in (rope, *norms.OPS)}
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def count(text):
    if not re.fullmatch(r"0*[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive integer")
    return int(text)


def heads(text):
    """32+8: query and key heads."""
    found = re.fullmatch(r"(\d+)\+(\d+)", text)
    numbers = tuple(map(int, found.groups())) if found else ()
    if not numbers or 0 in numbers:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 32+8, query and key heads")
    return numbers


def parser():
    p = argparse.ArgumentParser(
        prog="python -m brim.bench",
        description="Times brim, the libraries it competes with and plain copies of the same bytes, in turns within "
        "one run; each result is checked first. Without a shape option a default list runs; with one, every "
        "combination of those named, of the ops that have them (8192 tokens, 32+8 heads of 128; 8192 rows of 4096; "
        "bfloat16, bshd or contiguous where nothing is).",
    )
    p.add_argument(
        "op", nargs="*", metavar="OP", help=f"any of {', '.join(OPS)}; default: those with the shape options"
    )
    p.add_argument("--op", nargs="+", dest="named_ops", metavar="OP", default=[], help="the same")
    p.add_argument("--device", help="cpu or cuda (default: cuda where it can be used)")
    shape = p.add_argument_group("shapes")
    shape.add_argument("--tokens", nargs="+", type=count, metavar="N")
    shape.add_argument("--heads", nargs="+", type=heads, metavar="H+K", help="query and key heads, as 32+8")
    shape.add_argument("--head-dim", nargs="+", type=count, metavar="D")
    shape.add_argument("--rows", nargs="+", type=count, metavar="N")
    shape.add_argument("--hidden", nargs="+", type=count, metavar="H")
    shape.add_argument("--dtype", nargs="+", choices=DTYPES)
    shape.add_argument("--layout", nargs="+", choices=[layout for op in (rope, norms.OPS[0]) for layout in op.LAYOUTS])
    p.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    p.add_argument("--clock", nargs="+", choices=MEASURABLE["cuda"], help="default: see docs/performance.md")
    p.add_argument("--provider", nargs="+", metavar="NAME", help="only these; copies run in any case")
    p.add_argument("--compile", action="store_true", help="include torch-compile")
    p.add_argument("--rounds", type=count, help="samples of each (default 25; 75 of short calls)")
    p.add_argument("--quick", action="store_true", help="7 rounds")
    p.add_argument("--time", type=float, metavar="SECONDS", help="start no case after this long")
    p.add_argument("--threads", type=count, help="threads of the CPU")
    p.add_argument("--json", metavar="FILE", help="rows as Google Benchmark's JSON; - is the standard output")
    p.add_argument("--csv", metavar="FILE")
    return p


def pick_device(name):
    if name and not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        sys.exit(f"brim.bench: --device is {name}, expected cpu or cuda")
    status = brim.backend_info()["cuda"] if torch.cuda.is_available() else "torch sees none"
    if name == "cpu" or (not name and status != "available"):
        return torch.device("cpu")
    if status != "available":
        sys.exit(f"brim.bench: no GPU can be used: {status}")
    index = torch.device(name or "cuda").index or 0
    if index >= torch.cuda.device_count():
        sys.exit(f"brim.bench: there is no device cuda:{index}")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def device_name(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as info:
        model = next((line.split(": ", 1)[1].strip() for line in info if line.startswith("model name")), model)
    threads = torch.get_num_threads()
    return f"{model}, {threads} thread{'s' * (threads != 1)}"


def cases_of(op, options, device):
    if options.dtype or options.layout or any(getattr(options, name) for name in op.SHAPE_OPTIONS):
        return op.named_cases(options, [DTYPES[dtype] for dtype in options.dtype or ["bfloat16"]])
    return op.default_cases(device)


def wanted_ops(options):
    """Those that are named; else those that have the shape options and layouts that are."""
    named = [*options.op, *options.named_ops]
    if unknown := set(named) - OPS.keys():
        sys.exit(f"brim.bench: no op {', '.join(sorted(unknown))}; known: {', '.join(OPS)}")
    if named:
        ops = [OPS[name] for name in dict.fromkeys(named)]
        for op in ops:
            if unknown := set(options.layout or ()) - set(op.LAYOUTS):
                sys.exit(
                    f"brim.bench: {op.NAME} has no --layout {' '.join(sorted(unknown))}, but {', '.join(op.LAYOUTS)}"
                )
        return ops
    named = {name for op in OPS.values() for name in op.SHAPE_OPTIONS if getattr(options, name)}
    ops = [op for op in OPS.values() if named <= set(op.SHAPE_OPTIONS) and set(options.layout or ()) <= set(op.LAYOUTS)]
    if not ops:
        sys.exit("brim.bench: no op has all of these shape options; name one with --op")
    return ops


def plan(options, device, first):
    """{clock: modes} for a case. Unless asked for, `full` goes by the eager clock, and the host's clock, which hardly
    depends on the shape, is looked at in the first case only."""
    measurable = MEASURABLE[device.type]
    if options.clock:
        modes = {clock: measurable.get(clock, ()) for clock in options.clock}
    elif device.type == "cpu":
        modes = measurable
    else:
        modes = {"graph": measurable["graph"], "eager": ("full",), "host": measurable["host"] if first else ()}
    modes = {clock: [m for m in wanted if m in options.mode] for clock, wanted in modes.items()}
    return {clock: wanted for clock, wanted in modes.items() if wanted}


class Progress:
    """One line on a terminal that is written over; nothing elsewhere."""

    def __init__(self):
        self._on = sys.stderr.isatty()

    def __call__(self, text=""):
        if self._on:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def run(options, ops, out):
    """Everything the options ask for. Returns (rows, [(what, why left out)], whether brim was wrong or failed)."""
    device = options.device
    clocks, progress, began = make_clocks(device), Progress(), time.monotonic()
    done, left_out, wrong = [], [], False
    for op in ops:
        contestants, missing = providers.load(
            op.PROVIDERS, device, options.provider, ["torch-compile"] if options.compile else []
        )
        left_out += missing.items()
        wrong |= any(title.split(",")[0] == "brim" for title in missing)
        cases = cases_of(op, options, device)
        for i, case in enumerate(cases):
            if options.time is not None and time.monotonic() - began > options.time:
                left_out.append((str(case), f"not started after {options.time:g} s"))
                continue

            def on_round(clock, count, rounds, title=f"[{i + 1}/{len(cases)}] {case}"):
                progress(f"{title}, {clock}, round {count + 1}/{rounds}")

            measurement = Measurement(case, device, clocks, options.rounds, on_round)
            try:
                outcome = measurement.run(contestants, plan(options, device, i == 0))
            except Exception as error:  # its inputs do not fit, for one
                outcome = measurement.outcome
                outcome.left_out.append((str(case), reason(error)))
                wrong |= not isinstance(error, torch.OutOfMemoryError)
            del measurement
            progress()
            for row in outcome.rows:
                row.device = options.device_name
            if outcome.rows:
                print(table.text(case, outcome.rows), file=out, flush=True)
            done += outcome.rows
            left_out += [(what if what == str(case) else f"{case}: {what}", why) for what, why in outcome.left_out]
            wrong |= outcome.wrong
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return done, left_out, wrong


def main(arguments=None, ops=None):
    """Returns the exit status: 1 when a result of brim's was wrong, or brim failed."""
    options = parser().parse_args(arguments)
    ops = ops or wanted_ops(options)
    known = {cls.name for op in OPS.values() for cls in op.PROVIDERS}
    if options.provider and not set(options.provider) <= known:
        unknown = ", ".join(sorted(set(options.provider) - known))
        sys.exit(f"brim.bench: no provider {unknown}; known: {', '.join(sorted(known))}")
    if options.threads:
        torch.set_num_threads(options.threads)
    options.rounds = options.rounds or (7 if options.quick else None)
    options.device = pick_device(options.device)
    if absent := set(options.clock or ()) - set(MEASURABLE[options.device.type]):
        sys.exit(f"brim.bench: no --clock {' '.join(sorted(absent))} on the {options.device.type}")
    if options.json == options.csv == "-":
        sys.exit("brim.bench: --json and --csv cannot both go to the standard output")
    for path in filter(None, (options.json, options.csv)):
        rows.check_writable(path)
    options.device_name = device_name(options.device)
    torch.manual_seed(0)
    out = sys.stderr if "-" in (options.json, options.csv) else sys.stdout
    versions = {"brim": brim.__version__, **providers.versions()}
    print(f"{options.device_name}; {', '.join(f'{n} {v}' for n, v in versions.items())}", file=out)
    with contextlib.ExitStack() as stack:
        if options.device.type == "cuda":  # graphs cannot be captured on the default stream
            stack.enter_context(torch.cuda.stream(torch.cuda.Stream(options.device)))
        done, left_out, wrong = run(options, ops, out)
    if left_out:
        print("Left out:", file=out)
        for what, why in left_out:
            print(f"  {what}: {why}", file=out)
    if options.json:
        rows.write(options.json, rows.to_json(done, options.device_name, versions, left_out))
    if options.csv:
        rows.write(options.csv, rows.to_csv(done))
    return int(wrong)
