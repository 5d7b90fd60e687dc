"""brim.RMSNorm and brim.AddRMSNorm."""

import copy
import io
import pickle

import brim
import pytest
import torch

H = 64
KINDS = [brim.RMSNorm, brim.AddRMSNorm]


def run(module, x):
    return (module(x),) if isinstance(module, brim.RMSNorm) else module(x, x)


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_computes(device, kind):
    module = kind(H, 1e-5, offset=1.0, casting="gemma", device=device, dtype=torch.bfloat16)
    assert (module.weight == 0).all() and module.weight.dtype == torch.bfloat16
    torch.nn.init.normal_(module.weight)
    x = torch.randn(3, H, device=device).bfloat16()
    options = dict(offset=1.0, casting="gemma")
    if kind is brim.RMSNorm:
        assert torch.equal(module(x), brim.rms_norm(x, module.weight, 1e-5, **options))
    else:
        assert all(map(torch.equal, module(x, x), brim.add_rms_norm(x, x, module.weight, 1e-5, **options)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_it_starts_at_a_factor_of_1(kind, offset):
    module = kind(H, offset=offset)
    assert (module.weight + offset == 1).all()
    x = torch.randn(3, H)
    assert torch.equal(run(module, x)[0], run(kind(H, elementwise_affine=False), x)[0])
    torch.nn.init.normal_(module.weight)
    module.reset_parameters()
    assert (module.weight + offset == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_state_dicts_of_torch_fit(kind):
    theirs, ours = torch.nn.RMSNorm(H), kind(H)
    torch.nn.init.normal_(theirs.weight)
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.weight, theirs.weight)
    theirs.load_state_dict(ours.state_dict())
    assert not kind(H, elementwise_affine=False).state_dict()
    assert list(dict(ours.named_parameters())) == ["weight"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("affine", [True, False])
def test_91_copies(device, kind, affine):
    module = kind(H, 1e-4, elementwise_affine=affine, offset=0.5, casting="none", device=device)
    if affine:
        torch.nn.init.normal_(module.weight)
    x = torch.randn(3, H, device=device)
    with torch.inference_mode():
        want = run(module, x)
    saved = io.BytesIO()
    torch.save(module, saved)
    saved.seek(0)
    for other in (
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(saved, weights_only=False),
        copy.deepcopy(module).half().float() if not affine else copy.deepcopy(module),
    ):
        assert repr(other) == repr(module)
        assert all(map(torch.equal, run(other, x), want))
        leaf = x.clone().requires_grad_()
        sum(y.sum() for y in run(other, leaf)).backward()
        assert leaf.grad is not None


@pytest.mark.parametrize("kind", KINDS)
def test_moved_to_another_type(kind):
    module = kind(H).to(torch.bfloat16)
    x = torch.randn(3, H).bfloat16()
    assert all(y.dtype == torch.bfloat16 for y in run(module, x))


def test_repr():
    assert repr(brim.RMSNorm(H)) == "RMSNorm(64, eps=1e-06, casting='llama')"
    module = brim.AddRMSNorm(H, 1e-5, elementwise_affine=False, offset=1.0, casting="gemma")
    assert repr(module) == "AddRMSNorm(64, eps=1e-05, elementwise_affine=False, offset=1.0, casting='gemma')"


@pytest.mark.parametrize("kind", KINDS)
def test_95_refusals(kind):
    with pytest.raises(TypeError, match=f"{kind.__name__}: hidden_size is 64.0, expected an integer"):
        kind(64.0)
    with pytest.raises(ValueError, match=f"{kind.__name__}: casting is 'bert'"):
        kind(H, casting="bert")
    with pytest.raises(TypeError, match=f"{kind.__name__}: eps is None"):
        kind(H, None)
    with pytest.raises(ValueError, match="weight has 64 elements, last dimension of"):
        run(kind(H), torch.randn(3, 32))
    for x in (torch.randn(3, 32), torch.randn(())):
        with pytest.raises(ValueError, match=f"{kind.__name__}: x has shape .*, expected a last dimension of 64"):
            run(kind(H, elementwise_affine=False), x)
