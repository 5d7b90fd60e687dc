"""python -m brim.bench of the norms, on the CPU at tiny shapes; what all ops share is in test_bench.py."""

import json

import pytest
import torch
from brim.bench import cli, norm_providers, norms
from conftest import needs_cuda
from test_bench import FIELDS

NORM = ["--device", "cpu", "--rows", "16", "--hidden", "96", "--rounds", "2"]
# Tensors of rows that forward and backward move.
NORM_MOVES = {
    "rms_norm": {"forward": 2, "backward": 3, "full": 5},
    "add_rms_norm": {"forward": 4, "backward": 4, "full": 8},
}


def test_rows_of_the_norms(tmp_path):
    file = tmp_path / "rows.json"
    arguments = [*NORM, "--layout", "contiguous", "sliced", "--dtype", "bfloat16", "float16", "float32"]
    assert cli.main([*arguments, "--json", str(file)]) == 0
    found = set()
    for row in json.loads(file.read_text())["benchmarks"]:
        assert list(row) == FIELDS and row["shape"] == {"rows": 16, "hidden": 96} and not row["in_place"]
        once = 16 * 96 * (4 if row["dtype"] == "float32" else 2)
        assert row["bytes"] == once * NORM_MOVES[row["op"]][row["mode"]]
        assert row["wall_fraction"] == pytest.approx(row["wall_time"] / row["real_time"])
        if row["provider"] == "brim":
            outputs = 2 if (row["op"], row["mode"]) == ("add_rms_norm", "forward") else 1
            weight = 0 if row["mode"] == "forward" else once // 16
            assert row["path"] and row["peak_bytes"] == outputs * once + weight
        found.add((row["op"], row["provider"], row["mode"], row["layout"], row["dtype"]))
    for op in NORM_MOVES:
        for layout in ("contiguous", "sliced"):
            for dtype in ("bfloat16", "float16", "float32"):
                for mode in ("forward", "backward", "full"):
                    for provider in ("brim", "torch", "copy"):
                        assert (op, provider, mode, layout, dtype) in found


class WrongNorm(norm_providers.TorchAdd):
    name = "wrong"
    factors = (1, 1, 1)  # of dx, dresidual and dweight; of y and the sum

    def forward(self, t):
        return tuple(x * f for x, f in zip(super().forward(t), self.factors))

    def backward(self, t):
        right = norm_providers.TorchAdd().backward(t)
        return lambda: tuple(x * f for x, f in zip(right(), self.factors))


@pytest.mark.parametrize("wrong", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_wrong_norm_is_seen(wrong, dtype):
    setup = norms.Case("add_rms_norm", 33, 96, dtype).prepare(torch.device("cpu"))
    provider = WrongNorm()
    limit = setup.case.limit_ulp(provider)
    assert all(setup.error_ulp(provider, mode) <= limit for mode in ("forward", "backward", "full"))
    provider.factors = tuple(1.0625 if i == wrong else 1 for i in range(3))
    assert setup.error_ulp(provider, "backward") > limit
    assert (setup.error_ulp(provider, "forward") > limit) == (wrong < 2)
    provider.factors = tuple(float("nan") if i == wrong else 1 for i in range(3))
    assert setup.error_ulp(provider, "backward") == float("inf")


def test_the_default_lists_of_the_norms():
    for op in norms.OPS:
        cases = op.default_cases(torch.device("cuda"))
        assert len(set(cases)) == len(cases) and {c.op for c in cases} == {op.NAME}
        assert {c.dtype for c in cases} == {torch.bfloat16, torch.float16, torch.float32}
        assert {1024, 4096, 4097, 7168, 8192, 16384, 65536} <= {c.hidden for c in cases}
        assert ({64, 128, 256} <= {c.hidden for c in cases}) == (op.NAME == "rms_norm")


def test_a_chain_of_calls(tmp_path):
    """Each takes the last one's results, and a sample is the time of one."""
    setup = norms.Case("add_rms_norm", 5, 32, torch.float64, "chain").prepare(torch.device("cpu"))
    t = setup.tensors.leaves()
    y, total = t.x, t.residual
    for _ in range(16):
        y, total = norm_providers.add_norm(y, total, t.weight)
    want = torch.autograd.grad((y, total), t.trained(), t.gradients())
    for provider in norm_providers.BrimAdd(), norm_providers.TorchAdd():
        for a, b in zip(setup.call(provider, "full", True)(), want):
            torch.testing.assert_close(a, b)
    file = tmp_path / "rows.json"
    assert cli.main([*NORM, "--layout", "chain", "--provider", "brim", "torch", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["benchmarks"]
    assert {row["mode"] for row in rows} == {"full"} and {row["layout"] for row in rows} == {"chain"}
    assert {(row["op"], row["provider"]) for row in rows} == {(op, p) for op in NORM_MOVES for p in ("brim", "torch", "copy")}


@needs_cuda
def test_every_clock_of_cuda_for_the_norms(tmp_path):
    file = tmp_path / "rows.json"
    arguments = "--device cuda --rows 64 --hidden 256 --rounds 2 --provider brim torch hf".split()
    assert cli.main([*arguments, "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    found = {(r["provider"], r["op"], r["mode"], r["clock"], r["grad"]) for r in result["benchmarks"]}
    for provider in ("brim", "torch"):
        for op in NORM_MOVES:
            for mode, clock, grad in [
                ("forward", "graph", False),
                ("backward", "graph", False),
                ("full", "eager", True),
                ("forward", "host", False),
                ("forward", "host", True),
                ("full", "host", True),
            ]:
                assert (provider, op, mode, clock, grad) in found, result["context"]["left_out"]
