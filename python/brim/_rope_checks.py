"""What brim.rope checks of its arguments in Python; the core checks the rest."""

import itertools

import torch
from torch.compiler import is_compiling

from . import _checks
from ._checks import NARROW, for_the_cpu_only, is_integer, mix, mixed_types, not_a_float_tensor, type_name

_MOST_SECTION = (1 << 21) - 1
# The types of (q, k, cos, sin) that go together.
TYPES = frozenset(
    (q, k, table, table) for q, k, table in itertools.product(NARROW, (None, *NARROW), NARROW) if mix(q, k, table)
)
# For the CPU only.
CPU_TYPES = frozenset((torch.float64, k, torch.float64, torch.float64) for k in (None, torch.float64))


def type_error(q, k, cos, sin):
    named = {"q": q, "k": k, "cos": cos, "sin": sin}
    if k is None:
        del named["k"]
    return (
        not_a_float_tensor("rope", named)
        or _two_types(cos, sin)
        or mixed_types("rope", named)
        or for_the_cpu_only("rope", "q")
    )


def _two_types(cos, sin):
    if cos.dtype == sin.dtype:
        return None
    return TypeError(f"rope: sin is {type_name(sin)}, cos is {type_name(cos)}; they must have one type")


def packed_sections(sections):
    if not isinstance(sections, (list, tuple)) or not all(is_integer(n) for n in sections):
        raise TypeError(f"rope: sections is {sections!r}, expected a list of 3 integers")
    if len(sections) != 3:
        raise ValueError(f"rope: sections needs 3 entries, one an axis; it is {list(sections)}")
    if not any(sections):
        raise ValueError("rope: sections are all 0, expected 3 numbers that sum to rotary_dim/2")
    if not all(0 <= n <= _MOST_SECTION for n in sections):
        raise ValueError(f"rope: sections is {list(sections)}, expected 3 numbers that sum to rotary_dim/2")
    return sections[0] + (sections[1] << 21) + (sections[2] << 42)


def check_positions(position_ids, cos):
    if not isinstance(position_ids, torch.Tensor):
        raise TypeError(f"rope: position_ids is a {type(position_ids).__name__}, expected a torch.Tensor")
    if position_ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"rope: position_ids is {type_name(position_ids)}, expected int32 or int64")
    if _checks.enabled and position_ids.is_cuda and cos.dim() == 2 and not is_compiling():
        rows = cos.shape[0]
        bad = ((position_ids < 0) | (position_ids >= rows)).flatten().nonzero()
        if bad.numel():
            i = bad[0].item()
            raise IndexError(f"rope: position_ids[{i}] is {position_ids.flatten()[i].item()}, table has {rows} rows")


def option_error(layout, interleaved):
    if layout not in ("bhsd", "bshd", "thd"):
        return ValueError(f"rope: layout is {layout!r}, expected 'bhsd', 'bshd' or 'thd'")
    return ValueError(f"rope: interleaved is {interleaved!r}, expected False, True or 'to_half'")
