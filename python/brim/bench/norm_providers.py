"""Who takes part in the norms' benchmarks, and how each is called."""

import dataclasses
import importlib
import inspect
import types

import torch
import torch.nn.functional as F

import brim

from .providers import Provider

EPS = 1e-6


@dataclasses.dataclass
class Tensors:
    """Of a call and its backward pass; residual and dsum of the add alone."""

    x: torch.Tensor
    residual: torch.Tensor | None
    weight: torch.Tensor
    dy: torch.Tensor
    dsum: torch.Tensor | None

    def leaves(self):
        """The same with inputs that are trained."""
        leaf = lambda x: None if x is None else x.detach().requires_grad_()
        return dataclasses.replace(self, x=leaf(self.x), residual=leaf(self.residual), weight=leaf(self.weight))

    def after(self, y, total=None):
        """What the next call takes."""
        return Tensors(y, total, self.weight, self.dy, self.dsum)

    def trained(self):
        return [x for x in (self.x, self.residual, self.weight) if x is not None]

    def gradients(self):
        return [x for x in (self.dy, self.dsum) if x is not None]


class NormProvider(Provider):
    def forward(self, t):
        """(y,) or, of the add, (y, sum); without autograd."""
        raise NotImplementedError

    def backward(self, t):
        """A function that gives the gradients of x, of the residual where that is another tensor, and of the weight. By
        default autograd's, of a forward that is done here."""
        leaves = t.leaves()
        with torch.enable_grad():
            outputs = self.differentiable(leaves)
        return lambda: torch.autograd.grad(outputs, leaves.trained(), t.gradients(), retain_graph=True)

    def differentiable(self, t):
        return self.forward(t)

    def path(self, t, mode):
        return ""


class Brim(NormProvider):
    name = "brim"
    limit_ulp = 2

    def forward(self, t):
        return (brim.rms_norm(t.x, t.weight, EPS),)

    def backward(self, t):
        ops = torch.ops.brim
        _, rstd = ops.rms_norm_rstd(t.x, t.weight, EPS, 0.0, 0)
        op = ops.rms_norm_dx_dw.default
        return lambda: op(t.dy, t.x, t.weight, rstd, 0.0)

    def path(self, t, mode):
        return torch.ops.brim._rms_norm_plan(t.x, t.residual, t.weight, mode == "backward").split(" ")[0]


class BrimAdd(Brim):
    def forward(self, t):
        return brim.add_rms_norm(t.x, t.residual, t.weight, EPS)

    def backward(self, t):
        ops = torch.ops.brim
        _, total, rstd = ops.add_rms_norm_rstd(t.x, t.residual, t.weight, EPS, 0.0, 0)
        op = ops.add_rms_norm_dx_dw.default
        return lambda: op(t.dy, t.dsum, total, t.weight, rstd, 0.0)


class LigerTriton(NormProvider):
    name = "liger-triton"
    gpu_only = True
    module = "liger_kernel.ops.rms_norm"

    def __init__(self):
        self.ops = importlib.import_module(self.module)

    def forward(self, t):
        return (self.ops.rms_norm_forward(t.x, t.weight, EPS, 0.0, "llama", None)[0],)

    def backward(self, t):
        _, x, rstd, block, warps, casting = self.ops.rms_norm_forward(t.x, t.weight, EPS, 0.0, "llama", None)
        backward = self.ops.rms_norm_backward
        return lambda: backward(t.dy, x, t.weight, rstd, 0.0, casting, block, warps, False, None)

    def differentiable(self, t):
        return (self.ops.LigerRMSNormFunction.apply(t.x, t.weight, EPS, 0.0, "llama", False),)


class LigerCuteDSL(LigerTriton):
    name = "liger-cutedsl"
    module = "liger_kernel.ops.cutedsl.ops.rms_norm"


class LigerTritonAdd(LigerTriton):
    module = "liger_kernel.ops.fused_add_rms_norm"

    def __init__(self):
        super().__init__()
        forward = self.ops.fused_add_rms_norm_forward
        self._more = (None,) if "row_mode" in inspect.signature(forward).parameters else ()  # of later versions

    def _made(self, t):
        return self.ops.fused_add_rms_norm_forward(t.x, t.residual, t.weight, EPS, 0.0, "llama", *self._more)

    def forward(self, t):
        return self._made(t)[:2]

    def backward(self, t):
        _, total, rstd, *launch, casting = self._made(t)
        arguments = t.dy, t.dsum, total, t.weight, rstd, 0.0, casting, *launch, False, *self._more
        return lambda: self.ops.fused_add_rms_norm_backward(*arguments)

    def differentiable(self, t):
        return self.ops.LigerFusedAddRMSNormFunction.apply(t.x, t.residual, t.weight, EPS, 0.0, "llama", False)


class Quack(NormProvider):
    name = "quack"
    gpu_only = True

    def __init__(self):
        self.ops = importlib.import_module("quack.rmsnorm")

    def forward(self, t):
        return (self.ops.rmsnorm_fwd(t.x, t.weight, eps=EPS, store_rstd=True)[0],)

    def backward(self, t):
        rstd = self.ops.rmsnorm_fwd(t.x, t.weight, eps=EPS, store_rstd=True)[2]
        return lambda: self.ops.rmsnorm_bwd(t.x, t.weight, t.dy, rstd)[:2]

    def differentiable(self, t):
        return (self.ops.rmsnorm(t.x, t.weight, eps=EPS),)


class QuackAdd(Quack):
    def forward(self, t):
        return self.ops.rmsnorm_fwd(t.x, t.weight, residual=t.residual, eps=EPS, store_rstd=True)[:2]

    def backward(self, t):
        _, total, rstd = self.ops.rmsnorm_fwd(t.x, t.weight, residual=t.residual, eps=EPS, store_rstd=True)
        backward = self.ops.rmsnorm_bwd
        return lambda: backward(total, t.weight, t.dy, rstd, dresidual_out=t.dsum, has_residual=True)[:2]

    def differentiable(self, t):
        return self.ops.rmsnorm(t.x, t.weight, residual=t.residual, eps=EPS, prenorm=True)


def norm(x, weight):
    return F.rms_norm(x, x.shape[-1:], weight, EPS)


def add_norm(x, residual, weight):
    total = x + residual
    return norm(total, weight), total


class Torch(NormProvider):
    name = "torch"

    def forward(self, t):
        return (norm(t.x, t.weight),)


class TorchAdd(NormProvider):
    name = "torch"

    def forward(self, t):
        return add_norm(t.x, t.residual, t.weight)


class TorchCompile(NormProvider):
    name = "torch-compile"
    on_request = "compiles for a long time; --compile includes it"

    def __init__(self):
        self._compiled, self._shape = None, None

    def function(self, t):
        shape = t.x.shape, t.x.dtype, t.x.stride()
        if shape != self._shape:  # else torch gives up after a few shapes
            torch._dynamo.reset()
            self._compiled = torch.compile(norm if t.residual is None else add_norm, dynamic=False)
            self._shape = shape
        return self._compiled

    def forward(self, t):
        return (self.function(t)(t.x, t.weight),)


class TorchCompileAdd(TorchCompile):
    def forward(self, t):
        return self.function(t)(t.x, t.residual, t.weight)


class Transformers(NormProvider):
    name = "hf"

    def __init__(self):
        llama = importlib.import_module("transformers.models.llama.modeling_llama")
        self._forward = llama.LlamaRMSNorm.forward

    def _norm(self, x, weight):
        return self._forward(types.SimpleNamespace(weight=weight, variance_epsilon=EPS), x)

    def forward(self, t):
        return (self._norm(t.x, t.weight),)


class TransformersAdd(Transformers):
    def forward(self, t):
        total = t.residual + t.x
        return self._norm(total, t.weight), total


PROVIDERS = [Brim, LigerTriton, LigerCuteDSL, Quack, Torch, TorchCompile, Transformers]
ADD_PROVIDERS = [BrimAdd, LigerTritonAdd, QuackAdd, TorchAdd, TorchCompileAdd, TransformersAdd]
