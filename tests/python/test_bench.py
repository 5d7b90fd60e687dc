"""python -m brim.bench: what it writes, what it refuses, and its arithmetic. Runs on the CPU, at tiny shapes."""

import csv
import json
import os
import subprocess
import sys
import types

import brim
import pytest
import torch
from brim.bench import cli, providers, rope, rope_providers
from conftest import needs_cuda

FIELDS = (
    "name run_name run_type repetitions repetition_index threads iterations real_time cpu_time time_unit op mode "
    "provider path device dtype shape layout in_place grad clock p20 p80 bytes wall_time wall_fraction peak_bytes"
).split()
TINY = ["--device", "cpu", "--tokens", "16", "--heads", "4+2", "--head-dim", "64", "--rounds", "2"]


def bench(tmp_path, *arguments, ops=None):
    """(exit status, JSON)"""
    file = tmp_path / "rows.json"
    status = cli.main([*TINY, *arguments, "--json", str(file)], ops)
    return status, json.loads(file.read_text())


def test_rows_of_a_run(tmp_path, capsys):
    status, result = bench(tmp_path, "--layout", "bshd", "packed", "--dtype", "float32", "bfloat16")
    assert status == 0
    context = result["context"]
    assert context["versions"]["torch"] == torch.__version__.split("+")[0] and context["device"] and context["date"]
    found = set()
    for row in result["benchmarks"]:
        assert list(row) == FIELDS
        assert (row["op"], row["clock"], row["time_unit"], row["iterations"]) == ("rope", "host", "us", 2)
        assert row["shape"] == {"tokens": 16, "heads": 4, "kv_heads": 2, "head_dim": 64}
        once = 16 * 6 * 64 * (4 if row["dtype"] == "float32" else 2)
        assert row["bytes"] == once * (4 if row["mode"] == "full" else 2)
        assert 0 < row["p20"] <= row["real_time"] <= row["p80"]
        assert row["wall_fraction"] == pytest.approx(row["wall_time"] / row["real_time"])
        assert row["peak_bytes"] == (0 if row["in_place"] else once) or row["provider"] in ("torch", "hf")
        assert row["path"] or row["provider"] in ("torch", "hf")
        found.add((row["provider"], row["mode"], row["in_place"], row["layout"], row["dtype"]))
    for layout in ("bshd", "packed"):
        for dtype in ("float32", "bfloat16"):
            for mode in ("forward", "backward", "full"):
                for provider in ("brim", "torch", "copy"):
                    assert (provider, mode, False, layout, dtype) in found
                for provider in ("brim", "copy"):
                    assert ((provider, mode, True, layout, dtype) in found) == (mode != "full")
    printed = capsys.readouterr().out
    assert "of wall" in printed and "rope 16 x (4+2) x 64 float32 packed, forward, clock host" in printed


def test_whoever_does_not_take_part_is_named(tmp_path, capsys):
    _, result = bench(tmp_path, "--mode", "forward")
    left_out = {entry["what"]: entry["why"] for entry in result["context"]["left_out"]}
    for title in ("liger-triton, in place", "liger-cutedsl, in place", "quack, in place"):
        assert left_out[title] == "runs on a GPU only"
    assert "--compile" in left_out["torch-compile"]
    assert "quack, in place: runs on a GPU only" in capsys.readouterr().out


def test_a_missing_package_is_a_reason_not_an_error():
    class Absent(providers.Provider):
        name = "absent"

        def __init__(self):
            import no_such_package  # noqa: F401

    found, left_out = providers.load([Absent], torch.device("cpu"))
    assert not found and left_out == {"absent": "ModuleNotFoundError: No module named 'no_such_package'"}


class Wrong(rope_providers.Torch):
    name = "wrong"

    def forward(self, q, k, t):
        q, k = super().forward(q, k, t)
        return q, k * 1.03125


class BrokenBrim(rope_providers.Brim):
    def forward(self, q, k, t):
        raise RuntimeError("no kernel\nand a long story")


def rope_with(*classes):
    """The op with other providers."""
    return types.SimpleNamespace(**vars(rope) | {"PROVIDERS": classes})


def test_a_wrong_provider_is_not_timed(tmp_path):
    status, result = bench(tmp_path, "--mode", "forward", "full", ops=[rope_with(rope_providers.Brim, Wrong)])
    assert status == 0  # no fault of brim's
    assert {row["provider"] for row in result["benchmarks"]} == {"brim", "copy"}
    whys = {entry["what"].split(": ")[-1]: entry["why"] for entry in result["context"]["left_out"]}
    assert whys.keys() == {"wrong, forward", "wrong, full"}
    assert "wrong: off by" in whys["wrong, forward"] and "allowed are 4" in whys["wrong, forward"]


def test_a_fault_of_brims_is_the_exit_status(tmp_path):
    status, result = bench(tmp_path, "--mode", "forward", ops=[rope_with(BrokenBrim, rope_providers.Torch)])
    assert status == 1
    assert [e["why"] for e in result["context"]["left_out"]] == ["RuntimeError: no kernel"]
    assert {row["provider"] for row in result["benchmarks"]} == {"torch", "copy"}


def test_the_command_itself(tmp_path):
    file = tmp_path / "rows.csv"
    done = subprocess.run(
        [sys.executable, "-m", "brim.bench", *TINY, "--mode", "forward", "--provider", "brim", "--csv", str(file)],
        capture_output=True,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    lines = list(csv.DictReader(file.open()))
    assert {(line["provider"], line["in_place"]) for line in lines} == {
        (provider, place) for provider in ("brim", "copy") for place in ("true", "false")
    }
    assert all(float(line["gbps"]) > 0 for line in lines)
    assert done.stderr == ""  # no progress where nobody looks


@pytest.mark.parametrize(
    "arguments",
    [
        ["--provider", "nobody"],
        ["--device", "tpu"],
        ["--clock", "graph", "--device", "cpu"],
        ["--csv", "/no/such/folder", "--device", "cpu"],
        ["--json", "-", "--csv", "-", "--device", "cpu"],
        *(
            [option, wrong]
            for option in ("--tokens", "--head-dim", "--rows", "--hidden", "--rounds", "--threads")
            for wrong in ("0", "-3", "x")
        ),
        *(["--heads", wrong] for wrong in ("32", "0+0", "1+0", "8+")),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as refused:
        cli.main(arguments)
    assert refused.value.code != 0
    assert arguments[1] in str(refused.value) + capsys.readouterr().err


def test_a_refused_run_leaves_the_last_one_s_rows(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text("rows")
    with pytest.raises(SystemExit):
        cli.main([*TINY, "--json", str(file), "--csv", str(tmp_path / "no" / "folder")])
    assert file.read_text() == "rows"


def test_no_case_starts_after_its_time(tmp_path):
    _, result = bench(tmp_path, "--time", "0", "--tokens", "8", "16", "--mode", "forward")
    assert not result["benchmarks"]
    assert sum(e["why"] == "not started after 0 s" for e in result["context"]["left_out"]) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_errors_count_in_ulps_of_the_largest_term(dtype):
    case = rope.Case(8, 2, 1, 8, dtype)
    setup = case.prepare(torch.device("cpu"))
    t = setup.tables
    x = torch.ones(1, 2, 8, 8, dtype=dtype)  # at position 0, cos 1 and sin 0, terms are 1 and 0
    right = torch.cat(
        (x[..., :4].double() * t.cos[:, :4] - t.sin[:, :4], t.cos[:, :4] + t.sin[:, :4] + 0 * x[..., 4:]), -1
    )
    right = right.to(dtype)
    assert rope.error_ulp(x, right, t, inverse=False) <= 1
    off = right.clone()
    off[0, 1, 0, 0] = 1 + 3 * torch.finfo(dtype).eps
    assert rope.error_ulp(x, off, t, inverse=False) == pytest.approx(3)
    off[0, 1, 0, 0] = float("nan")
    assert rope.error_ulp(x, off, t, inverse=False) == float("inf")
    assert rope.error_ulp(x, right, t, inverse=True) > 100


@pytest.mark.parametrize("provider", [rope_providers.Brim, rope_providers.BrimInPlace, rope_providers.Torch])
def test_full_of_new_inputs_each_time(provider):
    setup = rope.Case(6, 4, 2, 8, torch.float32).prepare(torch.device("cpu"))
    prepare, call = setup.fresh_call(provider())
    rotated_by_nobody = setup.inputs()[0].clone()
    for _ in range(2):
        prepare()
        gradients = call()
        want = brim.rope(*setup._views(setup._work), setup.tables.cos, setup.tables.sin, inverse=True)
        for got, expected in zip(gradients, want, strict=True):
            torch.testing.assert_close(got, expected)
    assert torch.equal(setup.inputs()[0], rotated_by_nobody)


def test_clocks_of_a_case():
    options = cli.parser().parse_args([])
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert cli.plan(options, gpu, True) == {
        "graph": ["forward", "backward"],
        "eager": ["full"],
        "host": ["forward", "full"],
    }
    assert "host" not in cli.plan(options, gpu, False)
    assert cli.plan(options, cpu, False) == {"host": ["forward", "backward", "full"]}
    options = cli.parser().parse_args(["--clock", "eager", "graph", "--mode", "backward"])
    assert cli.plan(options, gpu, False) == {"eager": ["backward"], "graph": ["backward"]}


def test_full_of_packed_inputs_is_not_timed_behind_a_copy():
    packed = rope.Case(8, 2, 1, 8, layout="packed")
    assert packed.can_measure("full", "host") and packed.can_measure("backward", "eager")
    assert not packed.can_measure("full", "eager") and rope.Case(8, 2, 1, 8).can_measure("full", "eager")


def test_the_default_list_has_what_users_have():
    cases = rope.default_cases(torch.device("cuda"))
    assert {c.head_dim for c in cases} == {56, 64, 80, 92, 96, 128, 192, 256}
    assert {c.tokens for c in cases} == {2048, 6144, 8192, 32768}
    assert {c.dtype for c in cases} == {torch.bfloat16, torch.float16, torch.float32}
    assert {(32, 8), (128, 128), (73, 213)} == {(c.heads, c.kv_heads) for c in cases}
    assert {c.layout for c in cases} == set(rope.LAYOUTS)
    assert len(set(cases)) == len(cases)


def test_ops_are_picked_by_their_shape_options():
    picked = lambda *arguments: [op.NAME for op in cli.wanted_ops(cli.parser().parse_args(arguments))]
    assert picked() == ["rope", "rms_norm", "add_rms_norm"] == picked("--dtype", "float32")
    assert picked("--tokens", "8") == ["rope"] == picked("--layout", "packed")
    assert picked("--hidden", "8") == ["rms_norm", "add_rms_norm"] == picked("--layout", "sliced")
    assert picked("--op", "add_rms_norm", "--tokens", "8") == ["add_rms_norm"]
    assert picked("rms_norm", "rope", "--rows", "8") == ["rms_norm", "rope"]
    with pytest.raises(SystemExit, match="no op layer_norm; known: rope, rms_norm, add_rms_norm"):
        picked("layer_norm")
    with pytest.raises(SystemExit, match="no op has all of these"):
        picked("--tokens", "8", "--hidden", "8")
    with pytest.raises(SystemExit, match="rope has no --layout sliced, but bshd, packed"):
        picked("--op", "rope", "--layout", "sliced")


@needs_cuda
def test_every_clock_of_cuda(tmp_path):
    file = tmp_path / "rows.json"
    arguments = "--device cuda --tokens 64 --heads 4+2 --head-dim 64 --rounds 2 --provider brim torch hf".split()
    assert cli.main([*arguments, "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    found = {(r["provider"], r["op"], r["mode"], r["clock"], r["grad"], r["in_place"]) for r in result["benchmarks"]}
    for provider in ("brim", "torch"):
        for mode, clock, grad in [
            ("forward", "graph", False),
            ("backward", "graph", False),
            ("full", "eager", True),
            ("forward", "host", False),
            ("forward", "host", True),
            ("full", "host", True),
        ]:
            assert (provider, "rope", mode, clock, grad, False) in found, result["context"]["left_out"]
    for mode, grad in [("forward", False), ("forward", True), ("full", True)]:
        assert ("torch", "rms_norm", mode, "host", grad, False) in found
    for row in result["benchmarks"]:
        assert (row["wall_time"] is None) == (row["clock"] == "host")
        if row["provider"] == "brim" and row["clock"] == "graph":
            assert row["peak_bytes"] == (0 if row["in_place"] else row["bytes"] // 2)
