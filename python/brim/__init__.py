"""brim: the memory-bound kernels of language-model training, for PyTorch on CPU and CUDA."""

from ._checks import set_checks
from ._library import __version__, backend_info
from ._rms_norm import add_rms_norm, rms_norm
from ._rms_norm_modules import AddRMSNorm, RMSNorm
from ._rope import rope
from ._rope_tables import rope_tables

__all__ = [
    "AddRMSNorm",
    "RMSNorm",
    "__version__",
    "add_rms_norm",
    "backend_info",
    "rms_norm",
    "rope",
    "rope_tables",
    "set_checks",
]
