"""RoPE for the benchmark: its cases, and checking a result. All of head_dim turns, in pairs from a head's halves.

Storage is (b,s,h,d), as attention code makes it; "packed" takes q and k as slices of one (b,s,(h+2hk)*d) projection.
"""

import dataclasses

import torch
import torch.nn.functional as F

import brim

from .rope_providers import PROVIDERS, Tables

__all__ = ["LAYOUTS", "NAME", "PROVIDERS", "SHAPE_OPTIONS", "Case", "default_cases", "named_cases"]

NAME = "rope"
LAYOUTS = ("bshd", "packed")
SHAPE_OPTIONS = ("tokens", "heads", "head_dim")
_MOST_CHECKED = 1 << 24  # elements of a tensor


@dataclasses.dataclass(frozen=True)
class Case:
    tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype = torch.bfloat16
    layout: str = "bshd"
    calls = 1  # in a call that is timed

    op = NAME

    @property
    def shape(self):
        return {
            "tokens": self.tokens,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
        }

    def __str__(self):
        dtype = str(self.dtype).removeprefix("torch.")
        return f"rope {self.tokens} x ({self.heads}+{self.kv_heads}) x {self.head_dim} {dtype} {self.layout}"

    def bytes(self, mode):
        """What must be read and written; the tables are small beside it and are not counted."""
        once = self.tokens * (self.heads + self.kv_heads) * self.head_dim * self.dtype.itemsize
        return once * (4 if mode == "full" else 2)

    def copies(self, mode, in_place):
        """(pattern, bytes of a buffer) of the plain copies of the same bytes: one a direction."""
        once = ("in_place" if in_place else "copy", self.bytes("forward") // 2)
        return [once] * (2 if mode == "full" else 1)

    def limit_ulp(self, provider):
        return provider.limit_ulp

    def can_measure(self, mode, clock):
        """By the eager clock `full` has new inputs each time, as x * 1, and that of a slice is packed no longer."""
        return not (self.layout == "packed" and (mode, clock) == ("full", "eager"))

    def prepare(self, device):
        return Setup(self, device)


def default_cases(device):
    if device.type == "cpu":
        return [Case(8192, 32, 8, d, dtype) for d in (128, 64) for dtype in (torch.bfloat16, torch.float32)]
    dims = (56, 64, 80, 92, 96, 128, 192, 256)
    return [
        Case(2048, 32, 8, 128),  # the first one is measured on the host's clock too
        *(Case(8192, *heads, d) for heads in ((32, 8), (128, 128)) for d in dims),
        *(Case(tokens, *heads, 128) for tokens, heads in ((2048, (128, 128)), (32768, (32, 8)), (32768, (128, 128)))),
        Case(6144, 73, 213, 92),
        *(Case(8192, 32, 8, d, layout="packed") for d in (64, 128)),
        *(Case(8192, 32, 8, 128, dtype) for dtype in (torch.float16, torch.float32)),
        *(Case(8192, 128, 128, 56, dtype) for dtype in (torch.float16, torch.float32)),
    ]


def named_cases(options, dtypes):
    """Every combination of what the command line names."""
    return [
        Case(tokens, *heads, d, dtype, layout)
        for heads in options.heads or [(32, 8)]
        for d in options.head_dim or [128]
        for dtype in dtypes
        for layout in options.layout or ["bshd"]
        for tokens in options.tokens or [8192]
    ]


class Setup:
    """A case's tensors on a device: inputs that nobody writes, and a copy for those who work in place."""

    def __init__(self, case, device):
        self.case, self.device = case, device
        if case.layout == "packed":
            shapes = [(1, case.tokens, case.heads + 2 * case.kv_heads, case.head_dim)]
        else:
            shapes = [(1, case.tokens, h, case.head_dim) for h in (case.heads, case.kv_heads)]
        # Real rotations of random numbers: in place, over and over, they keep their size.
        self._x = [torch.randn(shape, device=device).to(case.dtype) for shape in shapes]
        self._work = [x.clone() for x in self._x]
        tables = brim.rope_tables(case.tokens, case.head_dim, device=device, dtype=case.dtype)
        self.tables = Tables(*tables)

    def _views(self, storage):
        """q and k, (b,h,s,d), of their storage."""
        if len(storage) == 1:
            q, k, _ = storage[0].split([self.case.heads, self.case.kv_heads, self.case.kv_heads], 2)
        else:
            q, k = storage
        return q.transpose(1, 2), k.transpose(1, 2)

    def inputs(self):
        return (*self._x, *self._work)

    def is_in_place(self, provider, grad):
        return provider.in_place and provider.writes_its_inputs(self.case.layout, grad)

    def path(self, provider, mode):
        return provider.path(*self._views(self._x), self.tables, mode)

    def call(self, provider, mode, grad):
        """One call of a provider, without arguments. Gradients have the inputs' values."""
        t = self.tables
        q, k = self._views(self._work if provider.in_place else self._x)
        if mode == "backward":
            return provider.backward(q, k, t)
        if not grad:
            return lambda: provider.forward(q, k, t)
        leaves = [x.detach().requires_grad_() for x in self._views(self._x)]
        gradients = self._views(self._work)
        if mode == "forward":
            return lambda: provider.differentiable(*leaves, t)
        return lambda: torch.autograd.grad(provider.differentiable(*leaves, t), leaves, gradients)

    def fresh_call(self, provider):
        """(prepare, call): forward and backward of tensors that `prepare` makes each time, as a projection makes them:
        no leaves, which cannot change in place."""
        leaves = [x.detach().requires_grad_() for x in self._views(self._x)]
        gradients = self._views(self._work)
        fresh, edges = [], []

        def prepare():
            fresh[:] = (x * 1 for x in leaves)
            # What is differentiated by: a tensor that changes in place stands for its result afterwards.
            edges[:] = map(torch.autograd.graph.get_gradient_edge, fresh)

        def call():
            return torch.autograd.grad(provider.differentiable(*fresh, self.tables), edges, gradients)

        return prepare, call

    def error_ulp(self, provider, mode):
        """The largest error of a provider's result, in ulps of the larger of the two terms of an element's sum."""
        t = self.tables
        before = self._views(self._x)
        q, k = self._views([x.clone() for x in self._x])
        if mode == "forward":
            with torch.no_grad():
                after = provider.forward(q, k, t)
        elif mode == "backward":
            after = provider.backward(q, k, t)()
        else:
            leaves = [x.detach().requires_grad_() for x in self._views([x.clone() for x in self._x])]
            with torch.enable_grad():
                outputs = provider.differentiable(*(x * 1 for x in leaves), t)
            after = torch.autograd.grad(outputs, leaves, (q, k))
        # Views of clones of which the inputs proper are still there to compare with.
        return max(error_ulp(x, y, t, inverse=mode != "forward") for x, y in zip(before, after, strict=True))

    def yardsticks(self, mode):
        """For the host's clock: torch's own RMSNorm of (tokens, heads*head_dim), an op of similar size to queue."""
        case = self.case
        rows, hidden = case.tokens, case.heads * case.head_dim
        x = torch.randn(rows, hidden, device=self.device).to(case.dtype)
        w, dy = torch.ones(hidden, device=self.device, dtype=case.dtype), torch.randn_like(x)
        norm = lambda: F.rms_norm(x, (hidden,), w, 1e-6)
        xg, wg = x.detach().requires_grad_(), w.detach().requires_grad_()
        tracked = lambda: F.rms_norm(xg, (hidden,), wg, 1e-6)
        size = x.numel() * x.element_size()
        shape = {"rows": rows, "hidden": hidden}
        if mode == "forward":
            return [(grad, "rms_norm", shape, 2 * size, call) for grad, call in ((False, norm), (True, tracked))]
        return [(True, "rms_norm", shape, 5 * size, lambda: torch.autograd.grad(tracked(), (xg, wg), dy))]


def error_ulp(x, got, tables, inverse):
    """`got` against the rotation of x in float64; of tokens spread evenly where there are many."""
    tokens = x.shape[2]
    some = max(1, min(tokens, _MOST_CHECKED * tokens // max(x.numel(), 1)))
    index = torch.linspace(0, tokens - 1, some, device=x.device, dtype=torch.float64).long()
    half = x.shape[-1] // 2
    x1, x2 = x.index_select(2, index).double().split(half, -1)
    c, s = (table.index_select(0, index).double()[:, :half] for table in (tables.cos, tables.sin))
    if inverse:
        s = -s
    worst = 0.0
    for y, a, b in zip(
        got.index_select(2, index).double().split(half, -1), (x1 * c, x2 * c), (-x2 * s, x1 * s), strict=True
    ):
        largest = torch.maximum(a.abs(), b.abs()).clamp_min(torch.finfo(x.dtype).tiny)
        ulp = torch.ldexp(torch.full_like(a, torch.finfo(x.dtype).eps), torch.frexp(largest).exponent - 1)
        error = ((y - (a + b)).abs() / ulp).max().item()
        worst = max(worst, error) if error == error else float("inf")
    return worst
