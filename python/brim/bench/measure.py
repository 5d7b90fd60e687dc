"""One case: check every provider, then time those that are right, beside plain copies, in turns."""

import dataclasses
from collections.abc import Callable

import torch

from .timing import reason, spread, take_turns
from .walls import Wall

MODES = ("forward", "backward", "full")
# What each clock can measure, on a GPU and on the CPU.
MEASURABLE = {
    "cuda": {"graph": ("forward", "backward"), "eager": MODES, "host": ("forward", "full")},
    "cpu": {"host": MODES},
}


@dataclasses.dataclass
class Row:
    """What is measured of one provider; a lane while it is, with the call that it times."""

    op: str
    mode: str
    provider: str
    dtype: str
    shape: dict
    layout: str
    clock: str
    bytes: int
    in_place: bool = False
    grad: bool = False  # autograd records the call
    calls: int = 1  # that `call` makes; the times are those of one
    path: str = ""
    copies: tuple = ()  # of a copy: what walls.py is to run
    device: str = ""
    samples: int = 0
    time: tuple = ()  # a Spread
    wall_time: float | None = None
    peak_bytes: int = 0
    call: Callable | None = None
    prepare: Callable | None = None  # before each call, not timed

    @property
    def wall_fraction(self):
        return None if self.wall_time is None else self.wall_time / self.time.median

    @property
    def title(self):
        return f"{self.provider}, in place" if self.in_place else self.provider


@dataclasses.dataclass
class Outcome:
    """The rows of a case, and (what, why) of all that is not among them. `wrong`: one of those is a fault of brim's."""

    rows: list = dataclasses.field(default_factory=list)
    left_out: list = dataclasses.field(default_factory=list)
    wrong: bool = False

    def leave_out(self, what, why, provider):
        self.left_out.append((what, why))
        self.wrong |= provider == "brim"


# A GPU is through with less than this in some ten microseconds, and the time of that changes by a few hundredths from one
# call to the next: the medians of 25 rounds differed by up to 3.6% between two runs (H200), those of 75 by up to 2.6%.
SHORT_BYTES = 256 << 20


class Measurement:
    """Measures `case` on `device` with `clocks` (timing.make_clocks). `plan`: {clock: modes}.

    rounds: None for 25, and 75 by the graph clock where the call is a short one.
    """

    def __init__(self, case, device, clocks, rounds=None, on_round=lambda clock, done, rounds: None):
        self.case, self.device, self.clocks, self.rounds, self.on_round = case, device, clocks, rounds, on_round
        self.outcome = Outcome()
        self._copied = None

    def run(self, providers, plan) -> Outcome:
        setup = self.case.prepare(self.device)
        plan = {clock: [m for m in wanted if self.case.can_measure(m, clock)] for clock, wanted in plan.items()}
        modes = [mode for mode in MODES if any(mode in wanted for wanted in plan.values())]
        right = {mode: [p for p in providers if self._is_right(setup, p, mode)] for mode in modes}
        for clock, wanted in plan.items():
            lanes = [lane for mode in wanted for lane in self._lanes(setup, clock, mode, right[mode])]
            self._time(lanes, clock)
        return self.outcome

    def _is_right(self, setup, provider, mode):
        what = f"{provider.title}, {mode}"
        try:
            ulp = setup.error_ulp(provider, mode)
        except Exception as error:
            self.outcome.leave_out(what, reason(error), provider.name)
            return False
        limit = self.case.limit_ulp(provider)
        if ulp <= limit:
            return True
        self.outcome.leave_out(
            what, f"wrong: off by {ulp:.3g} ulp of the largest term, allowed are {limit}", provider.name
        )
        return False

    def _row(self, clock, mode, provider, **more):
        case = self.case
        return Row(
            op=case.op,
            mode=mode,
            provider=provider,
            dtype=str(case.dtype).removeprefix("torch."),
            shape=case.shape,
            layout=case.layout,
            clock=clock,
            bytes=case.bytes(mode),
            **more,
        )

    def _lanes(self, setup, clock, mode, providers):
        queueing = clock == "host" and self.device.type == "cuda"
        lanes = []
        for provider in providers:
            for grad in (False, True) if queueing and mode == "forward" else (mode == "full",):
                in_place = setup.is_in_place(provider, grad)
                if in_place and grad and clock == "host":  # needs new inputs for each of the calls in a row
                    continue
                lane = self._row(clock, mode, provider.name, in_place=in_place, grad=grad, calls=self.case.calls)
                try:
                    if clock == "eager" and grad:
                        lane.prepare, lane.call = setup.fresh_call(provider)
                    else:
                        lane.call = setup.call(provider, mode, grad)
                    lane.path = setup.path(provider, mode)
                    lane.peak_bytes = peak_bytes(lane.call, grad, setup.inputs(), self.device, lane.prepare)
                except Exception as error:
                    self.outcome.leave_out(f"{provider.title}, {mode}, {clock}", reason(error), provider.name)
                else:
                    lanes.append(lane)
        if queueing:
            for grad, op, shape, size, call in setup.yardsticks(mode):
                lane = self._row(clock, mode, "torch", grad=grad, call=call)
                lane.op, lane.shape, lane.layout, lane.bytes = op, shape, "", size
                lanes.append(lane)
        elif lanes:
            lanes += self._copies(setup, clock, mode, {lane.in_place for lane in lanes})
        return lanes

    def _copies(self, setup, clock, mode, places):
        for in_place in sorted(places):
            copies = tuple(self.case.copies(mode, in_place))
            for form, call in self._wall(setup).forms(copies):
                lane = self._row(clock, mode, "copy", in_place=in_place, path=form, call=call, copies=copies)
                lane.peak_bytes = 0 if in_place else max(size for _, size in copies)
                yield lane

    def _wall(self, setup):
        self._copied = self._copied or Wall(setup.inputs()[0])
        return self._copied

    def _time(self, lanes, clock):
        if not lanes:
            return
        samplers, shared = {}, {}
        self.clocks[clock].start()
        for i, lane in enumerate(lanes):
            # Forward and backward of some cases move the same bytes: one copy stands for both.
            key = (lane.path, lane.in_place, lane.copies) if lane.provider == "copy" else i
            shared[i] = key
            if key in samplers:
                continue
            try:
                samplers[key] = self.clocks[clock].sampler(lane.call, lane.grad, lane.prepare, lane.calls)
            except Exception as error:
                self.outcome.leave_out(f"{lane.title}, {lane.mode}, {clock}", reason(error), lane.provider)
        short = clock == "graph" and min(lane.bytes for lane in lanes) < SHORT_BYTES
        rounds = self.rounds or (75 if short else 25)
        times, failures = take_turns(samplers, rounds, lambda done: self.on_round(clock, done, rounds))
        timed, copies = [], {}
        for i, lane in enumerate(lanes):
            lane.call = lane.prepare = None
            key = shared[i]
            if key in failures:
                self.outcome.leave_out(f"{lane.title}, {lane.mode}, {clock}", failures[key], lane.provider)
            elif key in times:
                lane.time, lane.samples = spread(times[key]), len(times[key])
                if lane.provider == "copy":
                    copies.setdefault((lane.mode, lane.in_place), []).append(lane)
                else:
                    timed.append(lane)
        best = {place: min(forms, key=lambda lane: lane.time.median) for place, forms in copies.items()}
        rows = timed + list(best.values())
        for row in rows:
            if (row.mode, row.in_place) in best:
                row.wall_time = best[row.mode, row.in_place].time.median
        self.outcome.rows += rows


def peak_bytes(call, grad, inputs, device, prepare=None):
    """The most memory that a call held at once beyond what was there before. On the CPU: its results' new memory."""
    prepare = prepare or (lambda: None)
    with torch.set_grad_enabled(grad):
        prepare()
        if device.type == "cuda":
            call()
            prepare()
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            call()
            return torch.cuda.max_memory_allocated() - before
        known = {x.untyped_storage().data_ptr() for x in inputs}
        results = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in call()}
        return sum(size for place, size in results.items() if place not in known)
