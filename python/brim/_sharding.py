"""How the ops act on torch's DTensors: the axes of the rows may be sharded, the last one may not."""

import sys

import torch

_known = False


def learn_shardings():
    """Registers the rules, once, where DTensors can be. Not when brim is imported: that would import torch's whole
    distributed package, which takes as long as torch itself."""
    global _known
    if not _known and "torch.distributed.tensor" in sys.modules:
        _register()
        _known = True
    return True


# torch.compile is to call it, not to trace it. torch.compiler.assume_constant_result says so too, and imports all of
# torch._dynamo.
learn_shardings._dynamo_marked_constant = True


# Arguments and results with the axes of the rows; `weight` is on every rank, its gradient a sum over all of them.
_ROWS = {"x", "residual", "sum", "dy", "dsum", "rstd", "y", "dx", "dr"}
_RESULTS = {
    "rms_norm": "y",
    "rms_norm_rstd": "y rstd",
    "rms_norm_dx": "dx",
    "rms_norm_dw": "dw",
    "rms_norm_dx_dw": "dx dw",
    "add_rms_norm": "y sum",
    "add_rms_norm_rstd": "y sum rstd",
    "add_rms_norm_dx": "dx",
    "add_rms_norm_dw": "dw",
    "add_rms_norm_dx_dw": "dx dw",
    "add_rms_norm_dx_dr": "dx dr",
    "add_rms_norm_dx_dr_dw": "dx dr dw",
}


def _register():
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    def rule(op, results):
        names = [argument.name for argument in op._schema.arguments]

        def shardings(*args):
            def placed(rows, dw):
                def argument(name, value):
                    if value is None:
                        return None
                    return rows if name in _ROWS else Replicate() if name == "weight" else None

                return [rows if r in _ROWS else dw for r in results], list(map(argument, names, args))

            sharded = [placed(Shard(axis), Partial()) for axis in range(len(args[0].shape) - 1)]
            return [placed(Replicate(), Replicate()), *sharded]

        register_sharding(op)(shardings)

    for name, results in _RESULTS.items():
        rule(getattr(torch.ops.brim, name).default, results.split())
