"""The parts of brim.bench that every op shares: clocks, turns, copies, rows and tables."""

import json

import pytest
import torch
from brim.bench import measure, rows, table, timing, walls


def test_medians_and_percentiles():
    assert timing.spread([4, 1, 3, 2, 5]) == (3, pytest.approx(1.8), pytest.approx(4.2))
    assert timing.spread([7]) == (7, 7, 7)


def test_all_take_turns_and_another_one_begins_each_round():
    order = []

    def sampler(name):
        return lambda: order.append(name) or len(order)

    def fails():
        order.append("c")
        if order.count("c") == 2:
            raise ValueError("worn out")
        return 0

    times, failures = timing.take_turns({"a": sampler("a"), "b": sampler("b"), "c": fails}, 3)
    assert "".join(order) == "abc" + "bca" + "ab"
    assert {name: len(samples) for name, samples in times.items()} == {"a": 3, "b": 3}
    assert failures == {"c": "ValueError: worn out"}


def test_the_host_clock_counts_calls_and_nothing_else():
    now, log = [0.0], []

    def call():
        log.append("call")
        now[0] += 5e-6

    def flush():
        log.append("flush")
        now[0] += 1.0

    queueing = timing.HostClock(calls=4, synchronize=lambda: log.append("wait"), now=lambda: now[0]).sampler(call)
    log.clear()
    assert queueing() == pytest.approx(5, rel=1e-3) and log == ["wait"] + ["call"] * 4
    # A call that makes several is made less often, and a sample is the time of one.
    several = timing.HostClock(calls=8, now=lambda: now[0]).sampler(call, calls=4)
    log.clear()
    assert several() == pytest.approx(5 / 4, rel=1e-3) and log == ["call"] * 2
    one = timing.HostClock(flush, now=lambda: now[0]).sampler(call)
    log.clear()
    assert one() == pytest.approx(5, rel=1e-3) and log == ["flush", "call"]


def test_the_grad_mode_is_the_lanes():
    modes = []
    sample = timing.HostClock(calls=1).sampler(lambda: modes.append(torch.is_grad_enabled()), grad=False)
    sample()
    assert not any(modes) and torch.is_grad_enabled()


def lane(provider, median, in_place=False, wall=1.0, **more):
    time = timing.Spread(median, median, median)
    row = measure.Row("rope", "forward", provider, "bfloat16", {"tokens": 1}, "bshd", "graph", 1000, in_place, **more)
    row.time, row.wall_time = time, wall
    return row


def test_brim_is_held_against_the_best_peer():
    ours, ours_in_place = lane("brim", 2.0), lane("brim", 2.5, True)
    peers = [lane("quack", 3.0, True), lane("torch", 2.8), lane("copy", 1.0)]
    assert table.best_peer(ours, peers).provider == "torch"
    assert table.best_peer(ours_in_place, peers).provider == "quack"
    printed = table.text("case", [ours, ours_in_place, *peers])
    assert "torch takes 1.40x" in printed and "quack, in place takes 1.20x" in printed and "0.50" in printed


def test_a_row_without_a_wall_is_written_as_such():
    row = lane("brim", 2.0, wall=None, grad=True)
    text = rows.to_json([row], "GPU", {}, [("x", "y")])
    written = json.loads(text)["benchmarks"][0]
    assert written["wall_time"] is None and written["wall_fraction"] is None and written["grad"]
    assert written["name"] == "rope/forward/brim/bfloat16/tokens:1/bshd/graph/grad"
    assert ",true,graph,2.000,2.000,2.000,1000,0.5,,,0\n" in rows.to_csv([row])


def test_copies_of_two_directions_run_one_after_the_other():
    wall = walls.Wall(torch.empty(0, dtype=torch.bfloat16))
    forms = wall.forms([("copy", 100), ("two_reads_one_write", 60)])
    names = [name for name, _ in forms]
    assert len(names) == len(set(names))
    for pattern in ("copy", "two_reads_one_write"):
        assert set(torch.ops.brim._copy_forms(torch.empty(0), pattern, 100).splitlines()) <= set(names)
    for _, call in forms:
        source, other = wall._buffers[1:]
        call()
        assert torch.equal(wall._buffers[0][:60], source[:60] ^ other[:60])
        assert torch.equal(wall._buffers[0][60:100], source[60:100])
