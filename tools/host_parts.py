#!/usr/bin/env python3
"""What a call of brim.rope costs the host, part by part, beside torch's own RMSNorm: microseconds, medians of turns.

Each line does a little more than one above it, so the differences say where the time goes. On the CPU the tensors are
tiny, and the kernel's time is little of it.
    tools/host_parts.py [--device cuda] [--rounds 25] [--json FILE]
"""

import argparse
import json

import torch
import torch.nn.functional as F

import brim
from brim.bench.timing import HostClock, spread, take_turns

op, op_in_place = torch.ops.brim.rope.default, torch.ops.brim.rope_.default


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


def parts(device):
    """{what: (grad, call)}"""
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

    def full(recorded):
        return True, lambda: torch.autograd.grad(recorded(), (qg, kg), (dq, dk))

    return {
        "two empty tensors": (False, lambda: (torch.empty_like(q), torch.empty_like(k))),
        "the op, in place": (False, lambda: op_in_place(q, k, *call)),
        "the op": (False, lambda: op(q, k, *call, -1)),
        "brim.rope, in place": (False, lambda: brim.rope(q, k, cos, sin, inplace=True)),
        "brim.rope": (False, lambda: brim.rope(q, k, cos, sin)),
        "F.rms_norm": (False, lambda: F.rms_norm(x, (hidden,), w, 1e-6)),
        "recorded: a Function that does nothing": (True, lambda: PassesThrough.apply(qg, kg)),
        "recorded: a Function with the op": (True, lambda: with_op(qg, kg, call, True)),
        "recorded: brim.rope": (True, lambda: brim.rope(qg, kg, cos, sin)),
        "recorded: F.rms_norm": (True, lambda: F.rms_norm(xg, (hidden,), wg, 1e-6)),
        "full: a Function that does nothing": full(lambda: PassesThrough.apply(qg, kg)),
        "full: a Function, the op forward": full(lambda: with_op(qg, kg, call, False)),
        "full: a Function, the op both ways": full(lambda: with_op(qg, kg, call, True)),
        "full: brim.rope": full(lambda: brim.rope(qg, kg, cos, sin)),
        "full: F.rms_norm": (
            True,
            lambda: torch.autograd.grad(F.rms_norm(xg, (hidden,), wg, 1e-6), (xg, wg), dy),
        ),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", help="write the medians to this file as well")
    options = parser.parse_args()
    clock = HostClock(synchronize=torch.cuda.synchronize if options.device == "cuda" else lambda: None)
    calls = parts(options.device)
    samplers = {name: clock.sampler(call, grad) for name, (grad, call) in calls.items()}
    times, failures = take_turns(samplers, options.rounds)
    for name in calls:
        print(f"{name:40}", f"{spread(times[name]).median:7.1f}" if name in times else failures[name])
    if options.json:
        with open(options.json, "w") as file:
            json.dump({name: spread(t)._asdict() for name, t in times.items()}, file, indent=1)


if __name__ == "__main__":
    main()
