"""RMSNorm and residual-add RMSNorm for the benchmark: their cases, and checking a result.

Casting "llama", offset 0, the weight of x's type, as models have it; "sliced" rows lie in a buffer three times as wide. A
"chain" is 16 calls, each of which normalises the last one's y (and adds to its sum), and one backward pass through all.
"""

import dataclasses

import torch
import torch.nn.functional as F

from .norm_providers import ADD_PROVIDERS, EPS, PROVIDERS, Tensors

__all__ = ["OPS", "Case", "NormOp"]

_MOST_CHECKED = 1 << 24  # elements of a tensor
_COLUMNS_CHECKED = 256  # of the weight's gradient


@dataclasses.dataclass(frozen=True)
class Case:
    op: str
    rows: int
    hidden: int
    dtype: torch.dtype = torch.bfloat16
    layout: str = "contiguous"

    @property
    def calls(self):
        """In a call that is timed."""
        return 16 if self.layout == "chain" else 1

    @property
    def add(self):
        return self.op == "add_rms_norm"

    @property
    def shape(self):
        return {"rows": self.rows, "hidden": self.hidden}

    def __str__(self):
        return f"{self.op} {self.rows} x {self.hidden} {str(self.dtype).removeprefix('torch.')} {self.layout}"

    def _moved(self, mode):
        """(reads, writes) of tensors of rows: x -> y; x, dy -> dx; x, residual -> y, sum; sum, dy, dsum -> dx."""
        forward, backward = ((2, 2), (3, 1)) if self.add else ((1, 1), (2, 1))
        return {"forward": [forward], "backward": [backward], "full": [forward, backward]}[mode]

    def bytes(self, mode):
        """What must be read and written; weight and rstd are small beside it and are not counted."""
        return sum(map(sum, self._moved(mode))) * self.rows * self.hidden * self.dtype.itemsize

    def copies(self, mode, in_place):
        """Plain copies of as many bytes, in the pattern that comes closest: (pattern, bytes of a buffer) for each
        direction."""
        for reads, writes in self._moved(mode):
            size = (reads + writes) * self.rows * self.hidden * self.dtype.itemsize
            yield ("two_reads_one_write", size // 3) if reads > writes else ("copy", size // 2)

    def limit_ulp(self, provider):
        # In float32 the sums, which take thousands of roundings, are no more exact than the result.
        return provider.limit_ulp * (8 if self.dtype == torch.float32 else 1)

    def can_measure(self, mode, clock):
        return self.calls == 1 or mode == "full"

    def prepare(self, device):
        return Setup(self, device)


class NormOp:
    """What the command line knows of an op."""

    LAYOUTS = ("contiguous", "sliced", "chain")
    SHAPE_OPTIONS = ("rows", "hidden")

    def __init__(self, name, providers):
        self.NAME, self.PROVIDERS = name, providers

    def default_cases(self, device):
        case = lambda *shape, **more: Case(self.NAME, *shape, **more)
        if device.type == "cpu":
            return [case(4096, h, dtype) for h in (1024, 4096) for dtype in (torch.bfloat16, torch.float32)]
        hiddens = (1024, 2048, 3584, 4096, 5120, 7168, 8192, 16384)
        heads = [] if self.NAME == "add_rms_norm" else [case(262144, 64), case(262144, 128), case(131072, 256)]
        return [
            case(2048, 4096),  # the first one is measured on the host's clock too
            *(case(8192, h) for h in hiddens),
            *heads,  # no model adds to heads
            case(32768, 4096),
            case(8192, 4097),
            case(2048, 65536),
            *(case(8192, 4096, layout=layout) for layout in ("sliced", "chain")),
            *(case(8192, 4096, dtype) for dtype in (torch.float16, torch.float32)),
        ]

    def named_cases(self, options, dtypes):
        """Every combination of what the command line names."""
        return [
            Case(self.NAME, rows, hidden, dtype, layout)
            for hidden in options.hidden or [4096]
            for dtype in dtypes
            for layout in options.layout or ["contiguous"]
            for rows in options.rows or [8192]
        ]


OPS = (NormOp("rms_norm", PROVIDERS), NormOp("add_rms_norm", ADD_PROVIDERS))


class Setup:
    """A case's tensors on a device, which nobody writes."""

    def __init__(self, case, device):
        self.case = case
        wide = 3 if case.layout == "sliced" else 1

        def rows():
            x = torch.randn(case.rows, wide * case.hidden, device=device).to(case.dtype)
            return x[:, case.hidden : 2 * case.hidden] if wide > 1 else x

        # Near 1 as a trained one: through a chain of norms, too, numbers keep their size.
        weight = (1 + torch.randn(case.hidden, device=device) / 8).to(case.dtype)
        self.tensors = Tensors(rows(), rows() if case.add else None, weight, rows(), rows() if case.add else None)

    def inputs(self):
        return [x for x in dataclasses.astuple(self.tensors) if x is not None]

    def is_in_place(self, provider, grad):
        return False

    def path(self, provider, mode):
        return provider.path(self.tensors, mode)

    def call(self, provider, mode, grad):
        """What is timed of a provider: `case.calls` calls, without arguments."""
        return self._call(provider, mode, grad, self.case.calls)

    def _call(self, provider, mode, grad, count=1):
        t = self.tensors
        if mode == "backward":
            return provider.backward(t)
        if not grad:
            return lambda: provider.forward(t)
        leaves = t.leaves()
        if mode == "forward":
            return lambda: provider.differentiable(leaves)

        def full():
            outputs = provider.differentiable(leaves)
            for _ in range(count - 1):
                outputs = provider.differentiable(leaves.after(*outputs))
            return torch.autograd.grad(outputs, leaves.trained(), t.gradients())

        return full

    def fresh_call(self, provider):
        """(prepare, call): nobody writes these inputs, so there is nothing to make anew."""
        return (lambda: None), self.call(provider, "full", True)

    def error_ulp(self, provider, mode):
        """The largest error of a provider's results, in ulps of the largest term of the sum that forms an element."""
        with torch.set_grad_enabled(mode == "full"):
            results = self._call(provider, mode, mode == "full")()
        if mode == "forward":
            return forward_error(self.tensors, *results)
        return backward_error(self.tensors, *results)

    def yardsticks(self, mode):
        return []  # torch's own RMSNorm is among the providers


def in_ulps(got, want, largest, dtype):
    largest = largest.abs().clamp_min(torch.finfo(dtype).tiny)
    ulp = torch.ldexp(torch.full_like(largest, torch.finfo(dtype).eps), torch.frexp(largest).exponent - 1)
    error = ((got.double() - want).abs() / ulp).max().item()
    return error if error == error else float("inf")


def spread_out(count, of, device):
    return torch.linspace(0, of - 1, min(count, of), device=device, dtype=torch.float64).long()


def some_rows(x):
    return spread_out(max(1, _MOST_CHECKED // x.shape[-1]), x.shape[0], x.device)


def forward_error(t, y, total=None):
    """y, and the sum of the add, against float64; of rows spread evenly where there are many."""
    index = some_rows(t.x)
    rows, error = t.x.index_select(0, index).double(), 0.0
    if total is not None:
        terms = rows, t.residual.index_select(0, index).double()
        total = total.index_select(0, index)
        largest = torch.maximum(*(x.abs() for x in terms))
        error, rows = in_ulps(total, sum(terms), largest, total.dtype), total.double()
    want = F.rms_norm(rows, rows.shape[-1:], t.weight.double(), EPS)
    return max(error, in_ulps(y.index_select(0, index), want, want, y.dtype))


def backward_error(t, *gradients):
    """dx (and dresidual) as above; dweight, whose terms are many, in ulps of the root of the sum of their squares."""
    rows = t.x if t.residual is None else t.x + t.residual
    index, error = some_rows(rows), 0.0
    x, dy = (z.index_select(0, index).double() for z in (rows, t.dy))
    rstd = (x.square().mean(-1, keepdim=True) + EPS).rsqrt()
    m, xhat = dy * t.weight.double(), x * rstd
    terms = [rstd * m, -rstd * xhat * (m * xhat).mean(-1, keepdim=True)]
    sizes = [terms[0].abs(), rstd * xhat.abs() * (m * xhat).abs().mean(-1, keepdim=True)]  # the mean may cancel as well
    if t.dsum is not None:
        terms.append(t.dsum.index_select(0, index).double())
        sizes.append(terms[-1].abs())
    largest = torch.stack(sizes).amax(0)
    for dx in gradients[:-1]:
        error = max(error, in_ulps(dx.index_select(0, index), sum(terms), largest, dx.dtype))
    columns = spread_out(_COLUMNS_CHECKED, rows.shape[-1], rows.device)
    want = torch.zeros(len(columns), device=rows.device, dtype=torch.float64)
    squares = want.clone()
    for part, dy in zip(rows.split(len(index)), t.dy.split(len(index)), strict=True):
        rstd = (part.double().square().mean(-1, keepdim=True) + EPS).rsqrt()
        products = dy[:, columns].double() * part[:, columns].double() * rstd
        want += products.sum(0)
        squares += products.square().sum(0)
    dw = gradients[-1]
    return max(error, in_ulps(dw[columns], want, torch.maximum(want.abs(), squares.sqrt()), dw.dtype))
