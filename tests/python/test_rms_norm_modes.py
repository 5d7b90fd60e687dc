"""The norms under what autograd offers: no gradients, some, checkpoints, transforms; what is kept and written."""

import brim
import pytest
import torch
from oracle import leaves
from torch.utils.checkpoint import checkpoint

H = 48


def count_ops(work):
    """Names of brim's ops that run."""
    names = []

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            if op.namespace == "brim":
                names.append(op._schema.name.removeprefix("brim::"))
            return op(*args, **(kwargs or {}))

    with Counting():
        work()
    return names


@pytest.mark.parametrize("x_grad, w_grad, op", [(1, 1, "rms_norm_dx_dw"), (1, 0, "rms_norm_dx"), (0, 1, "rms_norm_dw")])
def test_a_frozen_weight_costs_nothing(device, x_grad, w_grad, op):
    x = torch.randn(4, H, device=device, requires_grad=bool(x_grad))
    weight = torch.randn(H, device=device, requires_grad=bool(w_grad))
    ran = count_ops(lambda: brim.rms_norm(x, weight).sum().backward())
    assert ran == ["rms_norm_rstd", op]
    ran = count_ops(lambda: brim.add_rms_norm(x, x.detach(), weight)[0].sum().backward())
    assert ran == ["add_rms_norm_rstd", f"add_{op}"]
    assert (x.grad is None, weight.grad is None) == (not x_grad, not w_grad)


def test_nothing_is_recorded_without_need(device):
    x, weight = leaves((4, H), H, device=device)
    calls = lambda: (brim.rms_norm(x, weight), *brim.add_rms_norm(x, x, weight))
    with torch.no_grad():
        assert count_ops(calls) == ["rms_norm", "add_rms_norm"]
        assert not any(t.requires_grad for t in calls())
    with torch.inference_mode():
        assert count_ops(calls) == ["rms_norm", "add_rms_norm"]
        assert all(t.is_inference() for t in calls())


def test_91_inference_first_then_training(device):
    norm, add = brim.RMSNorm(H, device=device), brim.AddRMSNorm(H, device=device)
    x = torch.randn(4, H, device=device)
    with torch.inference_mode():
        norm(x), add(x, x)
    leaf = x.clone().requires_grad_()
    y, total = add(norm(leaf), leaf)
    (y.sum() + total.sum()).backward()
    assert leaf.grad.isfinite().all() and norm.weight.grad is not None and add.weight.grad is not None
    with torch.inference_mode():
        made = torch.randn(4, H, device=device)
    with pytest.raises(RuntimeError, match="[Ii]nference tensors cannot be saved"):
        norm(made)


def test_inputs_are_never_written(device):
    x, r, weight = leaves((5, H), (5, H), H, device=device)
    kept = [t.detach().clone() for t in (x, r, weight)]
    versions = [t._version for t in (x, r, weight)]
    y, total = brim.add_rms_norm(brim.rms_norm(x, weight), r, weight)
    (y.square().sum() + total.square().sum()).backward()
    assert all(map(torch.equal, (x, r, weight), kept)) and [t._version for t in (x, r, weight)] == versions


def test_a_residual_changed_in_place(device):
    x, weight = leaves((5, H), H, device=device)
    r = torch.randn(5, H, device=device)
    y, total = brim.add_rms_norm(x, r, weight)
    r.zero_()  # the residual that came in is not kept
    y.sum().backward()
    y, total = brim.add_rms_norm(x, r, weight)
    total += 1  # the sum is
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    x2 = x * 1
    y = brim.rms_norm(x2, weight)
    x2 += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def layers(x, weights):
    residual = x
    for w in weights:
        y, residual = brim.add_rms_norm(x, residual, w)
        x = brim.rms_norm(y.tanh(), w)
    return (x + residual).sin().sum()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(device, reentrant):
    x, *weights = leaves((5, H), H, H, device=device)
    want = torch.autograd.grad(layers(x, weights), (x, *weights))
    layers_again = checkpoint(layers, x, weights, use_reentrant=reentrant)
    layers_again.backward()
    for leaf, g in zip((x, *weights), want):
        assert torch.equal(leaf.grad, g)


def test_saved_tensors_can_be_moved(device):
    """Offloading sees what is kept: x, the weight and rstd; never y."""
    x, weight = leaves((5, H), H, device=device)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = brim.rms_norm(x, weight)
        y2, total = brim.add_rms_norm(x, x, weight)
    pointers = [t.data_ptr() for t in packed]
    assert [t.shape for t in packed] == [x.shape, weight.shape, (5,)] * 2
    assert x.data_ptr() in pointers and total.data_ptr() in pointers
    assert y.data_ptr() not in pointers and y2.data_ptr() not in pointers


def test_forward_mode_derivatives_are_refused_not_dropped(device):
    x, weight = torch.randn(4, H, device=device), torch.randn(H, device=device)
    with torch.autograd.forward_ad.dual_level():
        for primal, place in ((x, 0), (weight, 1)):
            given = [x, weight]
            given[place] = torch.autograd.forward_ad.make_dual(primal, torch.ones_like(primal))
            with pytest.raises(NotImplementedError):
                brim.rms_norm(*given)
            with pytest.raises(NotImplementedError):
                brim.add_rms_norm(given[0], x, given[1])


def test_vmap_of_tensors_without_gradients(device):
    x, weight = torch.randn(3, 4, H, device=device), torch.randn(H, device=device)
    got = torch.func.vmap(lambda one: brim.rms_norm(one, weight))(x)
    assert torch.equal(got, brim.rms_norm(x, weight))


def test_torch_func_never_loses_a_gradient(device):
    x, weight = torch.randn(3, 4, H, device=device), torch.randn(H, device=device)
    norm = lambda one: brim.rms_norm(one, weight)
    add = lambda one: brim.add_rms_norm(one, one * 1, weight)[0]
    for f in (norm, add):
        for transform in (
            lambda: torch.func.vmap(f)(x.requires_grad_()),
            lambda: torch.func.grad(lambda one: f(one).sum())(x[0].detach()),
            lambda: torch.func.jvp(f, (x[0].detach(),), (x[1].detach(),)),
        ):
            with pytest.raises(NotImplementedError):
                transform()
