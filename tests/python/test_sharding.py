"""DTensors of two ranks: the axes of the rows sharded, the weight on both, its gradient the sum of theirs."""

import os
import sys

import brim
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")

B, S, H = 4, 6, 32
RANKS = 2


def on_every_rank(tmp_path, *checks):
    """Starting the ranks takes longer than what they do, so they do several things."""
    mp.spawn(_rank, (str(tmp_path / "rendezvous"), checks), RANKS)


def _rank(rank, file, checks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=RANKS)
    try:
        mesh = dist.init_device_mesh("cpu", (RANKS,))
        for check in checks:
            torch.manual_seed(0)
            check(mesh)
    finally:
        dist.destroy_process_group()
    # Not by Python's own end: gloo's threads may still let go of a tensor, and torch (2.11) aborts if that is while Python
    # ends (pytorch issue 190489).
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def step(x, r, norm, add, dy):
    y = norm(x)
    z, total = add(y, r)
    ((z * dy).sum() + (total * dy).sin().sum()).backward()
    return y, z, total


def modules(weighted, trained):
    made = [k(H, elementwise_affine=weighted) for k in (brim.RMSNorm, brim.AddRMSNorm)]
    for module in made:
        if weighted:
            torch.nn.init.normal_(module.weight)
            module.weight.requires_grad_(trained)
    return made


def sharded_step(mesh, axis, weighted, trained, residual_dtype):
    from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor

    placement = Replicate() if axis is None else Shard(axis)
    x = torch.randn(B, S, H, dtype=torch.bfloat16 if residual_dtype else torch.float32)
    r, dy = torch.randn(B, S, H).to(residual_dtype or x.dtype), torch.randn(B, S, H)
    norms = modules(weighted, trained)
    whole = [t.clone().requires_grad_() for t in (x, r)]
    want = step(*whole, *norms, dy)
    gradients = [m.weight.grad for m in norms] if weighted and trained else []
    for m in norms:
        m.zero_grad()
    split = [distribute_tensor(t, mesh, [placement]).detach().requires_grad_() for t in (x, r)]
    placed = [distribute_module(m, mesh) for m in norms]
    got = step(*split, *placed, distribute_tensor(dy, mesh, [placement]))
    for a, b in zip(got, want):
        assert a.placements == (placement,)
        assert torch.equal(a.full_tensor(), b)
    for a, b in zip(split, whole):
        assert a.grad.placements == (placement,)
        torch.testing.assert_close(a.grad.full_tensor(), b.grad)
    for m, g in zip(placed, gradients):
        torch.testing.assert_close(m.weight.grad.full_tensor(), g, atol=1e-5, rtol=1e-5)


def rows_sharded(mesh):
    for axis in (0, 1, None):
        sharded_step(mesh, axis, True, True, None)
        sharded_step(mesh, axis, True, False, None)
        sharded_step(mesh, axis, False, False, None)
        sharded_step(mesh, axis, True, True, torch.float32)


def test_the_rows_sharded(tmp_path):
    on_every_rank(tmp_path, rows_sharded)


def other_placements(mesh):
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    x, weight = torch.randn(B, S, H), torch.randn(H)
    want = brim.rms_norm(x, weight)
    copies = distribute_tensor(weight, mesh, [Replicate()])
    # The last axis comes together first: never a norm of half a row.
    part = x if mesh.get_rank() == 0 else torch.zeros_like(x)
    for placed in (
        distribute_tensor(x, mesh, [Shard(2)]),
        distribute_tensor(x, mesh, [Shard(-1)]),
        DTensor.from_local(part, mesh, [Partial()]),
    ):
        assert torch.equal(brim.rms_norm(placed, copies).full_tensor(), want)
    # rstd has the axes of the rows: a gradient that comes in sharded along another one moves it too.
    leaf = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
    leaf_weight = copies.detach().requires_grad_()
    dy = torch.randn(B, S, H)
    y = brim.rms_norm(leaf, leaf_weight)
    dx, dw = torch.autograd.grad(y, (leaf, leaf_weight), distribute_tensor(dy, mesh, [Shard(0)]))
    whole, whole_weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    want_dx, want_dw = torch.autograd.grad(brim.rms_norm(whole, whole_weight), (whole, whole_weight), dy)
    torch.testing.assert_close(dx.full_tensor(), want_dx)
    torch.testing.assert_close(dw.full_tensor(), want_dw, atol=1e-5, rtol=1e-5)


def uneven(mesh):
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    x, norm = torch.randn(3, 1, H), brim.RMSNorm(H)
    norm = distribute_module(norm, mesh)
    for axis in (0, 1):  # of one row one rank has none
        leaf = distribute_tensor(x, mesh, [Shard(axis)]).requires_grad_()
        norm.zero_grad()
        y = norm(leaf)
        y.sum().backward()
        assert torch.equal(y.full_tensor(), brim.rms_norm(x, torch.ones(H)))
        torch.testing.assert_close(norm.weight.grad.full_tensor(), brim.rms_norm(x).sum((0, 1)), atol=1e-5, rtol=1e-5)


def compiled(mesh):
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    norm = distribute_module(brim.RMSNorm(H), mesh)
    leaf = distribute_tensor(torch.randn(B, S, H), mesh, [Shard(1)]).requires_grad_()
    results = []
    for f in (torch.compile(norm, fullgraph=True, backend="aot_eager"), norm):
        y = f(leaf)
        results.append((y, *torch.autograd.grad(y.sin().sum(), (leaf, norm.weight))))
    for got, want in zip(*results):
        torch.testing.assert_close(got.full_tensor(), want.full_tensor(), atol=1e-6, rtol=1e-6)


def data_parallel(mesh):
    """FSDP: the weight itself sharded, whole while it is used."""
    from torch.distributed.fsdp import fully_shard

    x = torch.randn(B, S, H)
    norms = modules(True, True)
    want = [brim.rms_norm(x, norms[0].weight)]
    want_dw = torch.autograd.grad(want[0].sin().sum(), norms[0].weight)[0]
    norm = fully_shard(norms[0], mesh=mesh)
    y = norm(x)
    y.sin().sum().backward()  # both ranks have the whole batch: the mean of two equal gradients
    assert torch.equal(y, want[0])
    torch.testing.assert_close(norm.weight.grad.full_tensor(), want_dw, atol=1e-5, rtol=1e-5)


def test_other_placements_and_uneven_shards(tmp_path):
    on_every_rank(tmp_path, other_placements, uneven)


def test_97_compiled_and_fully_sharded_parameters(tmp_path):
    on_every_rank(tmp_path, compiled, data_parallel)
