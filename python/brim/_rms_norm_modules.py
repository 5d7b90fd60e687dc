"""brim.RMSNorm and brim.AddRMSNorm."""

import torch

from ._checks import is_integer
from ._rms_norm import add_rms_norm, rms_norm
from ._rms_norm_checks import CASTINGS, casting_error, number


class _Norm(torch.nn.Module):
    def __init__(
        self, hidden_size, eps=1e-6, *, elementwise_affine=True, offset=0.0, casting="llama", device=None, dtype=None
    ):
        super().__init__()
        name = type(self).__name__
        if not is_integer(hidden_size):
            raise TypeError(f"{name}: hidden_size is {hidden_size!r}, expected an integer")
        if casting not in tuple(CASTINGS):
            raise casting_error(name, casting)
        self.hidden_size = int(hidden_size)
        self.eps, self.offset = number(name, eps=eps), number(name, offset=offset)
        self.casting = casting
        self.elementwise_affine = bool(elementwise_affine)
        weight = None
        if elementwise_affine:
            weight = torch.nn.Parameter(torch.empty(self.hidden_size, device=device, dtype=dtype))
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self):
        """The weight as it starts: offset + weight is 1."""
        if self.weight is not None:
            torch.nn.init.constant_(self.weight, 1 - self.offset)

    def _check_width(self, x):
        # With a weight the op does.
        if x.dim() == 0 or x.shape[-1] != self.hidden_size:
            raise ValueError(
                f"{type(self).__name__}: x has shape {tuple(x.shape)}, expected a last dimension of {self.hidden_size}"
            )

    def extra_repr(self):
        options = f"{self.hidden_size}, eps={self.eps}"
        if not self.elementwise_affine:
            options += ", elementwise_affine=False"
        if self.offset:
            options += f", offset={self.offset}"
        return options + f", casting={self.casting!r}"


class RMSNorm(_Norm):
    """brim.rms_norm with its weight: y = x * rstd * (offset + weight), over the last axis of x, hidden_size wide.

    The parameter is `weight`, (hidden_size), as in torch.nn.RMSNorm and in the model code of Hugging Face transformers,
    whose state dicts fit; it starts at 1 - offset. Without elementwise_affine there is none, and the factor is 1. For
    Gemma's checkpoints: offset=1.0, casting="gemma".
    """

    def forward(self, x):
        weight = self.weight
        if weight is None:
            self._check_width(x)
        return rms_norm(x, weight, self.eps, offset=self.offset, casting=self.casting)


class AddRMSNorm(_Norm):
    """brim.add_rms_norm with its weight; arguments and state dict as brim.RMSNorm's.

    Takes (x, residual), returns (y, x + residual).
    """

    def forward(self, x, residual):
        weight = self.weight
        if weight is None:
            self._check_width(x)
        return add_rms_norm(x, residual, weight, self.eps, offset=self.offset, casting=self.casting)
