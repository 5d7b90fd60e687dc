"""What brim.rope checks of its arguments in Python; the core checks the rest."""

import itertools

import torch
from torch.compiler import is_compiling

from . import _checks
from ._checks import is_integer

_MOST_SECTION = (1 << 21) - 1
_NARROW = (torch.float32, torch.bfloat16, torch.float16)
# The types of (q, k, cos, sin) that go together.
TYPES = frozenset(
    (q, k, table, table)
    for q, k, table in itertools.product(_NARROW, (None, *_NARROW), _NARROW)
    if not {torch.bfloat16, torch.float16} <= {q, k, table}
)
# For the CPU only.
CPU_TYPES = frozenset((torch.float64, k, torch.float64, torch.float64) for k in (None, torch.float64))


def type_error(q, k, cos, sin):
    named = {"q": q, "k": k, "cos": cos, "sin": sin}
    if k is None:
        del named["k"]
    for name, x in named.items():
        if not isinstance(x, torch.Tensor):
            return TypeError(f"rope: {name} is a {type(x).__name__}, expected a torch.Tensor")

    def type_of(name):
        return str(named[name].dtype).removeprefix("torch.")

    for name, x in named.items():
        if x.dtype not in (*_NARROW, torch.float64):
            return TypeError(f"rope: {name} is {type_of(name)}, expected float32, bfloat16, float16 or float64")
    if cos.dtype != sin.dtype:
        return TypeError(f"rope: sin is {type_of('sin')}, cos is {type_of('cos')}; they must have one type")
    for a, b in itertools.combinations(named, 2):
        if {named[a].dtype, named[b].dtype} in (
            {torch.bfloat16, torch.float16},
            *({torch.float64, n} for n in _NARROW),
        ):
            return TypeError(
                f"rope: {a} is {type_of(a)} and {b} is {type_of(b)}; these two types do not mix in one call"
            )
    return TypeError("rope: q is float64, which is for the CPU only")


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
        name = str(position_ids.dtype).removeprefix("torch.")
        raise TypeError(f"rope: position_ids is {name}, expected int32 or int64")
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
