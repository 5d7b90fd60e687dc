"""Clocks, taking turns, and what the samples come to. Times are microseconds."""

import contextlib
import gc
import time
from typing import NamedTuple

import torch

_ops = torch.ops.brim


class Spread(NamedTuple):
    median: float
    p20: float
    p80: float


def percentile(values, p):
    """The p-th percentile, interpolated between neighbours."""
    values = sorted(values)
    place = p / 100 * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def spread(values) -> Spread:
    return Spread(*(percentile(values, p) for p in (50, 20, 80)))


def reason(error) -> str:
    """An exception as one short line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


@contextlib.contextmanager
def no_collection():
    """Python's garbage collector must not fall into a sample."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def take_turns(samplers, rounds, on_round=lambda done: None):
    """Samples everything once a round, another one first each round. Returns ({key: samples}, {key: why it failed}).

    samplers: {key: function that takes one sample}. One that raises is out, and its samples do not count.
    """
    times, failures = {key: [] for key in samplers}, {}
    keys = list(samplers)
    with no_collection():
        for i in range(rounds):
            on_round(i)
            first = i % len(keys) if keys else 0
            for key in keys[first:] + keys[:first]:
                if key in failures:
                    continue
                try:
                    times[key].append(samplers[key]())
                except Exception as error:
                    failures[key] = reason(error)
                    del times[key]
    return times, failures


class Flush:
    """Reads a buffer larger than the last-level cache, so that nothing a call needs is cached, and nothing is dirty."""

    def __init__(self, device):
        self._sink = torch.ones(64, dtype=torch.uint8, device=device)
        # Written once: pages that were never touched would all be read as one page of zeros.
        self._buffer = torch.ones(_ops._flush_bytes(self._sink), dtype=torch.uint8, device=device)

    def __call__(self):
        _ops._flush(self._sink, self._buffer)


class Clock:
    def start(self):
        """Before the samplers of a run are made."""

    def sampler(self, call, grad=False, prepare=None, calls=1):
        """A function that takes one sample of `call`, which is made ready here; `grad` is its grad mode.

        prepare: what must be done before each call and is not timed (only where calls are timed one by one).
        calls: how many calls of an op `call` makes; a sample is the time of one.
        """
        raise NotImplementedError


class GraphClock(Clock):
    """A CUDA graph of one call, replayed after a flush; time on the GPU between two events.

    The flush takes long enough for what follows to be queued behind it: no gap on the host's account is timed.
    """

    def __init__(self, flush):
        self._flush = flush

    def start(self):
        """Before the samplers of a run, whose replays come one after the other and may share memory."""
        self._pool = torch.cuda.graph_pool_handle()

    def sampler(self, call, grad=False, prepare=None, calls=1):
        with torch.set_grad_enabled(grad):
            for _ in range(3):
                call()
            torch.cuda.synchronize()
            graph = self._capture(call)
        graph.replay()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def sample():
            self._flush()
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) * 1e3 / calls

        return sample

    def _capture(self, call):
        # Not torch.cuda.graph(), which collects garbage and empties the cache each time: most of a second with
        # everything imported. The current stream is one of cli.py's own.
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            try:
                call()
            finally:
                graph.capture_end()
        except Exception as error:
            self._pool = torch.cuda.graph_pool_handle()  # the former one may be left half open
            cause = error.__context__ or error  # ending a capture that has failed fails as well, and says less
            raise RuntimeError(f"cannot be captured in a CUDA graph: {reason(cause)}") from error
        return graph


class EagerClock(Clock):
    """The plain call after a flush, nothing queued; time on the GPU between two events, launch gaps included. A call that
    is not timed comes first: a model makes it in every layer, with the host's caches warm, not once in a while."""

    def __init__(self, flush):
        self._flush = flush

    def sampler(self, call, grad=False, prepare=None, calls=1):
        prepare = prepare or (lambda: None)
        with torch.set_grad_enabled(grad):
            for _ in range(3):
                prepare()
                call()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def sample():
            with torch.set_grad_enabled(grad):
                prepare()
                call()
                prepare()
                self._flush()
                torch.cuda.synchronize()
                begin.record()
                call()
                end.record()
                end.synchronize()
            return begin.elapsed_time(end) * 1e3 / calls

        return sample


class HostClock(Clock):
    """Time on the host. For a GPU: to queue a call, the mean of several in a row, caches warm, nothing waited for in
    between. For the CPU (`flush` given): one call, after a flush."""

    def __init__(self, flush=None, calls=20, synchronize=lambda: None, now=time.perf_counter):
        self._flush, self._synchronize, self._now = flush, synchronize, now
        self._calls = calls if flush is None else 1

    def sampler(self, call, grad=False, prepare=None, calls=1):
        with torch.set_grad_enabled(grad):
            for _ in range(2 if self._flush else 10):
                call()
        times = max(1, self._calls // calls)

        def sample():
            with torch.set_grad_enabled(grad):
                if self._flush:
                    self._flush()
                self._synchronize()
                start = self._now()
                for _ in range(times):
                    call()
                return (self._now() - start) * 1e6 / (times * calls)

        return sample


def make_clocks(device):
    """{name: clock} of a device."""
    flush = Flush(device)
    if device.type == "cpu":
        return {"host": HostClock(flush)}
    return {
        "graph": GraphClock(flush),
        "eager": EagerClock(flush),
        "host": HostClock(synchronize=torch.cuda.synchronize),
    }
