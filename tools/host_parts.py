#!/usr/bin/env python3
"""What a call of an op costs the host, part by part, beside torch's own RMSNorm: microseconds, medians of turns.

Each line does a little more than one above it, so the differences say where the time goes. On the CPU the tensors are
tiny, and the kernel's time is little of it.
    tools/host_parts.py [--op rms_norm] [--device cuda] [--rounds 25] [--json FILE]
"""

import argparse
import json

import torch
import torch.nn.functional as F

import brim
from brim._autograd import lean
from brim.bench.timing import HostClock, spread, take_turns

ops = torch.ops.brim
op, op_in_place = ops.rope.default, ops.rope_.default
norm, norm_rstd, norm_back = ops.rms_norm.default, ops.rms_norm_rstd.default, ops.rms_norm_dx_dw.default
EPS = 1e-6


class PassesThrough(torch.autograd.Function):
    """What recording costs when there is nothing to do."""

    @staticmethod
    def forward(ctx, q, k):
        return q.view_as(q), k.view_as(k)

    @staticmethod
    def backward(ctx, dq, dk):
        return dq, dk


class WithOp(torch.autograd.Function):
    """The op in the forward pass and, if asked for, in the backward pass, with none of brim.rope's Python."""

    @staticmethod
    def forward(ctx, q, k, call, in_backward):
        ctx.call = call if in_backward else None
        return op(q, k, *call, -1)

    @staticmethod
    def backward(ctx, dq, dk):
        return *(op(dq, dk, *ctx.call, -1) if ctx.call else (dq, dk)), None, None


@lean
class PassesOneThrough(torch.autograd.Function):
    """PassesThrough for the norm: the least that a Function in Python costs there."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.w = w
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        return dy, ctx.w


@lean
class NormWithOp(torch.autograd.Function):
    """WithOp for the norm. Without the op in the backward pass, gradients that are there already."""

    @staticmethod
    def forward(ctx, x, w, gradients):
        y, rstd = norm_rstd(x, w, EPS)
        ctx.gradients = gradients
        ctx.save_for_backward(x, w, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        saved = ctx.saved_tensors
        return *(ctx.gradients or norm_back(dy, *saved)), None


def full(recorded, inputs, gradients):
    return True, lambda: torch.autograd.grad(recorded(), inputs, gradients)


def torch_norm(x, w):
    return F.rms_norm(x, x.shape[-1:], w, EPS)


def norm_parts(device):
    x, dy = (torch.randn(*((2048, 4096) if device == "cuda" else (4, 64)), device=device).bfloat16() for _ in range(2))
    w = torch.ones(x.shape[-1], device=device, dtype=x.dtype)
    xg, wg = x.clone().requires_grad_(), w.clone().requires_grad_()
    _, rstd = norm_rstd(x, w, EPS)
    with_op = NormWithOp._apply
    passes = lambda: PassesOneThrough._apply(xg, wg)
    return {
        "an empty tensor": (False, lambda: torch.empty_like(x)),
        "the op": (False, lambda: norm(x, w, EPS)),
        "the op that keeps rstd": (False, lambda: norm_rstd(x, w, EPS)),
        "the backward op": (False, lambda: norm_back(dy, x, w, rstd)),
        "brim.rms_norm": (False, lambda: brim.rms_norm(x, w, EPS)),
        "F.rms_norm": (False, lambda: torch_norm(x, w)),
        "recorded: a Function that does nothing": (True, passes),
        "recorded: a Function with the op": (True, lambda: with_op(xg, wg, None)),
        "recorded: brim.rms_norm": (True, lambda: brim.rms_norm(xg, wg, EPS)),
        "recorded: F.rms_norm": (True, lambda: torch_norm(xg, wg)),
        "full: a Function that does nothing": full(passes, (xg, wg), dy),
        "full: a Function, the op forward": full(lambda: with_op(xg, wg, (dy, w)), (xg, wg), dy),
        "full: a Function, the op both ways": full(lambda: with_op(xg, wg, None), (xg, wg), dy),
        "full: brim.rms_norm": full(lambda: brim.rms_norm(xg, wg, EPS), (xg, wg), dy),
        "full: F.rms_norm": full(lambda: torch_norm(xg, wg), (xg, wg), dy),
    }


def rope_parts(device):
    tokens, heads, k_heads, d = (2048, 32, 8, 128) if device == "cuda" else (1, 2, 1, 8)
    q, k = (torch.randn(1, tokens, n, d, device=device).transpose(1, 2).to(torch.bfloat16) for n in (heads, k_heads))
    cos, sin = brim.rope_tables(tokens, d, device=device)
    call = cos, sin, None, 0, 0
    qg, kg, dq, dk = (*(x.clone().requires_grad_() for x in (q, k)), torch.randn_like(q), torch.randn_like(k))
    hidden = (heads + k_heads) * d
    x, dy = (torch.randn(tokens, hidden, device=device, dtype=torch.bfloat16) for _ in range(2))
    w = torch.ones(hidden, device=device, dtype=torch.bfloat16)
    xg, wg = x.clone().requires_grad_(), w.clone().requires_grad_()
    with_op = super(torch.autograd.Function, WithOp).apply

    def both(recorded):
        return full(recorded, (qg, kg), (dq, dk))

    return {
        "two empty tensors": (False, lambda: (torch.empty_like(q), torch.empty_like(k))),
        "the op, in place": (False, lambda: op_in_place(q, k, *call)),
        "the op": (False, lambda: op(q, k, *call, -1)),
        "brim.rope, in place": (False, lambda: brim.rope(q, k, cos, sin, inplace=True)),
        "brim.rope": (False, lambda: brim.rope(q, k, cos, sin)),
        "F.rms_norm": (False, lambda: torch_norm(x, w)),
        "recorded: a Function that does nothing": (True, lambda: PassesThrough.apply(qg, kg)),
        "recorded: a Function with the op": (True, lambda: with_op(qg, kg, call, True)),
        "recorded: brim.rope": (True, lambda: brim.rope(qg, kg, cos, sin)),
        "recorded: F.rms_norm": (True, lambda: torch_norm(xg, wg)),
        "full: a Function that does nothing": both(lambda: PassesThrough.apply(qg, kg)),
        "full: a Function, the op forward": both(lambda: with_op(qg, kg, call, False)),
        "full: a Function, the op both ways": both(lambda: with_op(qg, kg, call, True)),
        "full: brim.rope": both(lambda: brim.rope(qg, kg, cos, sin)),
        "full: F.rms_norm": full(lambda: torch_norm(xg, wg), (xg, wg), dy),
    }


# {op: function of the device that gives {what: (grad, call)}}
PARTS = {"rope": rope_parts, "rms_norm": norm_parts}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="rope", choices=PARTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", help="write the medians to this file as well")
    options = parser.parse_args()
    clock = HostClock(synchronize=torch.cuda.synchronize if options.device == "cuda" else lambda: None)
    calls = PARTS[options.op](options.device)
    samplers = {name: clock.sampler(call, grad) for name, (grad, call) in calls.items()}
    times, failures = take_turns(samplers, options.rounds)
    for name in calls:
        print(f"{name:40}", f"{spread(times[name]).median:7.1f}" if name in times else failures[name])
    if options.json:
        with open(options.json, "w") as file:
            json.dump({name: spread(t)._asdict() for name, t in times.items()}, file, indent=1)


if __name__ == "__main__":
    main()
