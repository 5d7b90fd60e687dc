"""Who takes part in RoPE's benchmark, and how each is called."""

import dataclasses
import importlib

import torch

import brim
from brim._rope import INVERSE

from .providers import Provider


@dataclasses.dataclass
class Tables:
    """cos and sin (s,d), halves repeated, and in the other shapes that are asked for."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __post_init__(self):
        self.batched = self.cos[None], self.sin[None]
        half = self.cos.shape[-1] // 2
        self.halves = self.cos[:, :half].contiguous(), self.sin[:, :half].contiguous()


def rotate_half(q, k, cos, sin):
    """What models write down, in plain torch."""

    def rotated(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    return rotated(q), rotated(k)


class RopeProvider(Provider):
    """forward, backward and differentiable take q, k as (b,h,s,d) views, and Tables."""

    def forward(self, q, k, t):
        """(q, k) rotated, without autograd."""
        raise NotImplementedError

    def backward(self, dq, dk, t):
        """A function that gives the gradients. By default autograd's, of a forward that is done here."""
        q, k = (x.detach().requires_grad_() for x in (dq, dk))
        with torch.enable_grad():
            outputs = self.differentiable(q, k, t)
        return lambda: torch.autograd.grad(outputs, (q, k), (dq, dk), retain_graph=True)

    def differentiable(self, q, k, t):
        return self.forward(q, k, t)

    def writes_its_inputs(self, layout, grad):
        """Whether one that works in place does so for tensors of this layout, and under autograd."""
        return True

    def path(self, q, k, t, mode):
        return ""


class Brim(RopeProvider):
    name = "brim"
    limit_ulp = 2

    def forward(self, q, k, t):
        return brim.rope(q, k, t.cos, t.sin, inplace=self.in_place)

    def backward(self, dq, dk, t):
        return lambda: brim.rope(dq, dk, t.cos, t.sin, inverse=True, inplace=self.in_place)

    def path(self, q, k, t, mode):
        options = INVERSE if mode == "backward" else 0
        plan = torch.ops.brim._rope_plan(q, k, t.cos, t.sin, None, options, 0, self.in_place)
        return plan.split(" ")[0]


class BrimInPlace(Brim):
    in_place = True


class LigerTriton(RopeProvider):
    name = "liger-triton"
    in_place = True
    gpu_only = True
    module, function = "liger_kernel.ops.rope", "LigerRopeFunction"

    def __init__(self):
        self.ops = importlib.import_module(self.module)
        self.apply = getattr(self.ops, self.function).apply

    def forward(self, q, k, t):
        return self.ops.rope_forward(q, k, *t.batched)[:2]

    def backward(self, dq, dk, t):
        return lambda: self.ops.rope_backward(dq, dk, *t.batched)

    def differentiable(self, q, k, t):
        return self.apply(q, k, *t.batched)

    def writes_its_inputs(self, layout, grad):
        return layout != "packed"  # strided ones it copies first


class LigerCuteDSL(LigerTriton):
    name = "liger-cutedsl"
    module, function = "liger_kernel.ops.cutedsl.ops.rope", "LigerRopeCuteDSLFunction"


class Quack(RopeProvider):
    name = "quack"
    in_place = True
    gpu_only = True

    def __init__(self):
        self.ops = importlib.import_module("quack.rotary")

    def _each(self, q, k, function):
        return tuple(function(x.transpose(1, 2)).transpose(1, 2) for x in (q, k))

    def forward(self, q, k, t):
        return self._each(q, k, lambda x: self.ops.apply_rotary(x, *t.halves, inplace=True))

    def backward(self, dq, dk, t):
        return lambda: self._each(dq, dk, lambda x: self.ops.apply_rotary(x, *t.halves, inplace=True, conjugate=True))

    def differentiable(self, q, k, t):
        return self._each(q, k, lambda x: self.ops.apply_rotary_emb(x, *t.halves))

    def writes_its_inputs(self, layout, grad):
        return not grad


class Torch(RopeProvider):
    name = "torch"

    def forward(self, q, k, t):
        return rotate_half(q, k, t.cos, t.sin)


class TorchCompile(RopeProvider):
    name = "torch-compile"
    on_request = "compiles for a long time; --compile includes it"

    def __init__(self):
        self._compiled, self._shapes = None, None

    def forward(self, q, k, t):
        shapes = q.shape, k.shape, q.dtype, q.stride()
        if shapes != self._shapes:  # else torch gives up after a few shapes
            torch._dynamo.reset()
            self._compiled = torch.compile(rotate_half, dynamic=False)
            self._shapes = shapes
        return self._compiled(q, k, t.cos, t.sin)


class Transformers(RopeProvider):
    name = "hf"

    def __init__(self):
        self.rotate = importlib.import_module("transformers.models.llama.modeling_llama").apply_rotary_pos_emb

    def forward(self, q, k, t):
        return self.rotate(q, k, *t.batched)


PROVIDERS = [Brim, BrimInPlace, LigerTriton, LigerCuteDSL, Quack, Torch, TorchCompile, Transformers]
