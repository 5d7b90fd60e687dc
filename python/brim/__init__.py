"""brim: the memory-bound kernels of language-model training, for PyTorch on CPU and CUDA."""

from ._checks import set_checks
from ._library import __version__, backend_info
from ._rope import rope
from ._rope_tables import rope_tables

__all__ = ["__version__", "backend_info", "rope", "rope_tables", "set_checks"]
