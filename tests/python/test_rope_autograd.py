"""brim.rope's gradients, out of place and in place."""

import itertools

import brim
import oracle
import pytest
import torch
from oracle import LAYOUTS, MODES, PAIRINGS
from torch.utils.checkpoint import checkpoint

B, S, H, HK, D = 2, 2, 3, 2, 8
KINDS = ("(s,w)", "(1,s,w)", "(b,s,w)", "positions (s)", "positions (b,s)", "sections")


def shapes(layout, d=D, h=H, hk=HK):
    return {
        "bhsd": ((B, h, S, d), (B, hk, S, d)),
        "bshd": ((B, S, h, d), (B, S, hk, d)),
        "thd": ((S, h, d), (S, hk, d)),
    }[layout]


def tables(kind, r, device, dtype=torch.float64, batch=B):
    """(cos, sin, options) of one kind of table, width r/2."""
    cos, sin = (t.to(device, dtype) for t in oracle.tables(20, r))
    one, many = torch.randperm(20)[:S].to(device), torch.randint(20, (batch, S)).to(device)
    if kind == "sections":
        n = r // 2
        axes = torch.randint(20, (3, batch, S)).to(device)
        return cos[axes], sin[axes], dict(sections=[n // 2, n - n // 2, 0])
    if kind.startswith("positions"):
        return cos, sin, dict(position_ids=many if "b" in kind else one)
    rows = {"(s,w)": one, "(1,s,w)": one[None], "(b,s,w)": many}[kind]
    return cos[rows], sin[rows], {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("r", [6, 4])
@pytest.mark.parametrize("interleaved, inplace", MODES)
def test_89_gradcheck(interleaved, r, layout, kind, inplace):
    batch = 1 if layout == "thd" else B
    cos, sin, options = tables(kind, r, "cpu", batch=batch)
    q, k = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes(layout, d=6, h=2, hk=1))

    def run(q, k):
        if inplace:
            q, k = q * 1, k * 1
        return brim.rope(
            q, k, cos, sin, layout=layout, interleaved=interleaved, rotary_dim=r, inplace=inplace, **options
        )

    assert torch.autograd.gradcheck(run, (q, k))
    assert torch.autograd.gradgradcheck(run, (q, k))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("r", [D, 4])
@pytest.mark.parametrize("interleaved, inplace", MODES)
def test_89_gradients_in_float32(device, interleaved, r, layout, kind, inplace):
    cos, sin, options = tables(kind, r, device, torch.float32, batch=1 if layout == "thd" else B)
    options |= dict(layout=layout, interleaved=interleaved)
    leaves = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes(layout)]
    gradients = [torch.randn_like(x) for x in leaves]
    q, k = (x * 1 for x in leaves) if inplace else leaves
    torch.autograd.backward(brim.rope(q, k, cos, sin, rotary_dim=r, inplace=inplace, **options), gradients)
    for x, g in zip(leaves, gradients):
        (want,) = torch.autograd.grad(oracle.rope(x, cos, sin, r=r, **options), x, g.double())
        torch.testing.assert_close(x.grad, want, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("interleaved", PAIRINGS)
def test_89_rotating_back_is_the_identity(device, interleaved):
    q, k = (torch.randn(shape, device=device) for shape in shapes("bhsd"))
    cos, sin, _ = tables("(b,s,w)", D, device, torch.float32)
    y = brim.rope(q, k, cos, sin, interleaved=interleaved, rotary_dim=D)
    back = brim.rope(*y, cos, sin, interleaved=interleaved, rotary_dim=D, inverse=True)
    torch.testing.assert_close(back[0], q, atol=1e-6, rtol=0)
    torch.testing.assert_close(back[1], k, atol=1e-6, rtol=0)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_29_an_expanded_gradient(device, layout):
    shape = lambda n: (2, n, 1, 2) if layout == "bhsd" else (2, 1, n, 2)
    q, k = (torch.randn(shape(n), device=device, requires_grad=True) for n in (4, 2))
    cos, sin = (t[1:] for t in brim.rope_tables(2, 2, device=device))
    a, b = brim.rope(q, k, cos, sin, layout=layout)
    (a.sum() + b.sum()).backward()
    want = torch.tensor([1.381773, -0.301169], device=device)
    for x in (q, k):
        torch.testing.assert_close(x.grad, want.expand_as(x), atol=1e-6, rtol=0)


def gradient_views(like):
    yield "expanded", torch.randn(1, 1, 1, 1, device=like.device).expand_as(like)
    yield "expanded heads", torch.randn_like(like[:, :1]).expand_as(like)
    yield "transposed", torch.randn_like(like.transpose(1, 2).contiguous()).transpose(1, 2)
    wide = torch.randn(*like.shape[:-1], 2 * D, device=like.device)
    yield "inner stride 2", wide[..., ::2]
    yield "last axis not innermost", torch.randn_like(like.transpose(-1, -2).contiguous()).transpose(-1, -2)


@pytest.mark.parametrize("interleaved, inplace", MODES)
def test_gradients_of_any_strides_are_served_and_not_written(device, interleaved, inplace):
    cos, sin, _ = tables("(s,w)", D, device, torch.float32)
    x = torch.randn(shapes("bhsd")[0], device=device, requires_grad=True)
    for name, g in gradient_views(x):
        kept = g.clone()
        source = x * 1 if inplace else x
        y, _ = brim.rope(source, None, cos, sin, rotary_dim=D, interleaved=interleaved, inplace=inplace)
        (got,) = torch.autograd.grad(y, x, g)
        want, _ = brim.rope(g.contiguous(), None, cos, sin, rotary_dim=D, interleaved=interleaved, inverse=True)
        assert torch.equal(got, want), name
        assert torch.equal(g, kept), f"{name}: the incoming gradient was written"


@pytest.mark.parametrize("axes", [p for p in itertools.permutations(range(4))])
def test_a_gradient_has_the_layout_of_its_leaf(device, axes):
    cos, sin = brim.rope_tables(S, D, device=device)
    back = [axes.index(i) for i in range(4)]

    def leaf(shape):
        return torch.randn([shape[a] for a in axes], device=device).permute(back).requires_grad_()

    q, k = (leaf(shape) for shape in shapes("bhsd"))
    outputs = brim.rope(q, k, cos, sin)
    assert [y.stride() for y in outputs] == [q.stride(), k.stride()]
    # torch.autograd.grad gives what brim made; .grad would have been copied into the leaf's layout.
    upstream = [torch.randn(y.shape, device=device) for y in outputs]
    dq, dk = torch.autograd.grad(outputs, (q, k), upstream)
    assert dq.stride() == q.stride() and dk.stride() == k.stride()
    (dk,) = torch.autograd.grad(brim.rope(q.detach().contiguous(), k, cos, sin)[1], k, upstream[1])
    assert dk.stride() == k.stride()
    y, _ = brim.rope(k * 1, None, cos, sin, inplace=True)
    assert y.grad_fn.apply(torch.ones(k.shape, device=device))[0].stride() == k.stride()


def test_a_gradient_is_handed_to_its_leaf_without_a_copy(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    q = torch.randn(B, S, H, D, device=device).transpose(1, 2).requires_grad_()
    made = []
    y, _ = brim.rope(q, None, cos, sin)
    y.grad_fn.register_hook(lambda inputs, _: made.append(inputs[0].data_ptr()))
    y.backward(torch.ones_like(y).contiguous())
    assert q.grad.data_ptr() == made[0]


@pytest.mark.parametrize("wanted", ["q", "k"])
@pytest.mark.parametrize("inplace", [False, True])
def test_only_wanted_gradients_are_made(device, wanted, inplace):
    cos, sin = brim.rope_tables(S, D, device=device)
    x = {n: torch.randn(shape, device=device, requires_grad=n == wanted) for n, shape in zip("qk", shapes("bhsd"))}
    inputs = [t * 1 for t in x.values()] if inplace else x.values()
    a, b = brim.rope(*inputs, cos, sin, inplace=inplace)
    assert (a.requires_grad, b.requires_grad) == (wanted == "q", wanted == "k")  # or attention would compute both
    (a.square().sum() + b.square().sum()).backward()
    other = x["k" if wanted == "q" else "q"]
    assert other.grad is None
    torch.testing.assert_close(x[wanted].grad, 2 * x[wanted].detach(), atol=1e-5, rtol=1e-5)


def test_only_wanted_gradients_are_computed(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    q, k = (torch.randn(shape, device=device) for shape in shapes("bhsd"))
    a, b = brim.rope(q, k.requires_grad_(), cos, sin)
    dq, dk, *_ = b.grad_fn.apply(torch.ones_like(a), torch.ones_like(b))
    assert dq is None and dk is not None


def test_one_output_unused(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    q, k = (torch.randn(shape, device=device, requires_grad=True) for shape in shapes("bhsd"))
    _, b = brim.rope(q, k, cos, sin)
    b.square().sum().backward()
    assert q.grad is None
    torch.testing.assert_close(k.grad, 2 * k.detach(), atol=1e-5, rtol=1e-5)


def test_backward_twice_adds_up(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    q, k = (torch.randn(shape, device=device, requires_grad=True) for shape in shapes("bhsd"))
    loss = sum(y.sum() for y in brim.rope(q, k, cos, sin))
    loss.backward(retain_graph=True)
    once = q.grad.clone()
    loss.backward()
    assert torch.equal(q.grad, 2 * once)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("b, h, s", [(1, 4, 1), (2, 1, 7), (2, 3, 5)])
def test_the_gradient_of_a_sum_is_one_number(device, b, h, s, dtype):
    """All its strides are 0: a kernel that takes elements for neighbours reads what lies behind the number."""
    cos, sin = brim.rope_tables(s, 64, device=device)
    q = torch.randn(b, s, h, 64, device=device, dtype=dtype).transpose(1, 2).requires_grad_()
    y, _ = brim.rope(q, None, cos, sin)
    one = torch.full((64,), 777, device=device, dtype=dtype).index_fill_(0, torch.tensor([0], device=device), 1)[0]
    (of_sum,) = torch.autograd.grad(y, q, one.expand(y.shape), retain_graph=True)
    (of_ones,) = torch.autograd.grad(y, q, torch.ones_like(y))
    assert torch.equal(of_sum, of_ones)


def test_a_list_of_sections_may_change_before_backward(device):
    cos, sin, options = tables("sections", D, device, torch.float32)
    q = torch.randn(shapes("bhsd")[0], device=device, requires_grad=True)
    y, _ = brim.rope(q, None, cos, sin, rotary_dim=D, **options)
    options["sections"].reverse()
    y.square().sum().backward()
    torch.testing.assert_close(q.grad, 2 * q.detach(), atol=1e-5, rtol=1e-5)


def test_tables_changed_before_backward_are_noticed(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    q = torch.randn(shapes("bhsd")[0], device=device, requires_grad=True)
    y, _ = brim.rope(q, None, cos, sin)
    cos.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("inplace", [False, True])
def test_91_tables_made_in_inference_mode(device, inplace):
    with torch.inference_mode():
        cos, sin = brim.rope_tables(S, D, device=device)
        positions = torch.arange(S, device=device)
        x = torch.randn(shapes("bhsd")[0], device=device)
        brim.rope(x, None, cos, sin, position_ids=positions, inplace=inplace)
    q = torch.randn(shapes("bhsd")[0], device=device, requires_grad=True)
    y, _ = brim.rope(q * 1 if inplace else q, None, cos, sin, position_ids=positions, inplace=inplace)
    y.square().sum().backward()
    torch.testing.assert_close(q.grad, 2 * q.detach(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("strided", [False, True])
def test_83_in_place_writes_its_inputs_and_says_so(device, strided):
    def make(shape):
        x = torch.randn(shape, device=device)
        return x.transpose(1, 2).contiguous().transpose(1, 2) if strided else x

    q, k = (make(shape) for shape in shapes("bhsd"))
    cos, sin = brim.rope_tables(S, D, device=device)
    want = brim.rope(q, k, cos, sin)
    versions = q._version, k._version
    pointers = q.data_ptr(), k.data_ptr()
    got = brim.rope(q, k, cos, sin, inplace=True)
    assert got[0] is q and got[1] is k and (q.data_ptr(), k.data_ptr()) == pointers
    assert q._version > versions[0] and k._version > versions[1]
    assert torch.equal(q, want[0]) and torch.equal(k, want[1])


def projections(x, inplace, cos, sin):
    """q and k as a model has them: views of two projections."""
    q = (x @ torch.eye(D, device=x.device).repeat(1, H)).unflatten(-1, (H, D)).transpose(1, 2)
    k = (x @ torch.eye(D, device=x.device).repeat(1, HK)).unflatten(-1, (HK, D)).transpose(1, 2)
    q, k = brim.rope(q, k, cos, sin, inplace=inplace)
    return (q.square().cumsum(-1).sin().sum() + k.cos().sum(-1).square().sum()) / 7


def test_83_in_place_under_autograd_and_checkpointing(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    x = torch.randn(B, S, D, device=device, requires_grad=True)
    gradients = []
    for inplace, recompute in ((False, False), (True, False), (True, True), (False, True)):
        if recompute:
            loss = checkpoint(projections, x, inplace, cos, sin, use_reentrant=False)
        else:
            loss = projections(x, inplace, cos, sin)
        gradients += torch.autograd.grad(loss, x)
    for g in gradients[1:]:
        assert torch.equal(g, gradients[0])


def test_in_place_misuse_of_a_saved_tensor_raises(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    x = torch.randn(shapes("bhsd")[0], device=device, requires_grad=True)
    y = x.exp()  # keeps y for its backward
    y, _ = brim.rope(y, None, cos, sin, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_in_place_refuses_leaves_and_writes_nothing(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    q, k = (torch.randn(shape, device=device) for shape in shapes("bhsd"))
    for name, leaf in (("q", q), ("k", k)):
        before = q.clone(), k.clone()
        leaf.requires_grad_()
        with pytest.raises(RuntimeError, match=f"{name} is a leaf Variable that requires grad"):
            brim.rope(q, k, cos, sin, inplace=True)
        with torch.no_grad():
            assert torch.equal(q, before[0]) and torch.equal(k, before[1])
            brim.rope(q, k, cos, sin, inplace=True)  # as torch allows
        leaf.requires_grad_(False)


def made_without_grad(x):
    with torch.no_grad():
        return x[:, :H]


@pytest.mark.parametrize(
    "view, text",
    [
        (lambda leaf: leaf[:, :H], "q is a view of a leaf Variable that requires grad"),
        (lambda leaf: (leaf * 1).split([H, HK], 1)[0], "q is a view made by a function of several outputs"),
        (lambda leaf: (leaf * 1)[:, None].unbind(1)[0][:, :H], "q is a view made by a function of several outputs"),
        (lambda leaf: made_without_grad(leaf * 1), "q is a leaf Variable that requires grad"),
    ],
)
def test_in_place_refuses_views_that_torch_refuses_and_writes_nothing(device, view, text):
    cos, sin = brim.rope_tables(S, D, device=device)
    q = view(torch.randn(B, H + HK, S, D, device=device, requires_grad=True))
    before, version = q.detach().clone(), q._version
    with pytest.raises(RuntimeError):
        q.mul_(1)
    with pytest.raises(RuntimeError, match=text):
        brim.rope(q, None, cos, sin, inplace=True)
    assert torch.equal(q.detach(), before) and q._version == version


def test_in_place_on_two_views_of_one_buffer(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    packed = torch.randn(B, S, H + HK, D, device=device, requires_grad=True)

    def views(buffer):
        return buffer[:, :, :H].transpose(1, 2), buffer[:, :, H:].transpose(1, 2)

    with pytest.raises(RuntimeError, match="views of one buffer.*out-of-place"):
        brim.rope(*views(packed * 1), cos, sin, inplace=True)
    buffer = packed.detach().clone()
    want = brim.rope(*views(buffer), cos, sin)
    got = brim.rope(*views(buffer), cos, sin, inplace=True)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])
    one = packed * 1  # a single view of a buffer is followed
    brim.rope(views(one)[0], None, cos, sin, inplace=True)
    (g,) = torch.autograd.grad(one.square().sum(), packed)
    torch.testing.assert_close(g, 2 * packed.detach(), atol=1e-5, rtol=1e-5)


def test_gradient_of_the_gradient_on_the_device(device):
    cos, sin, _ = tables("(b,s,w)", D, device, torch.float32)
    q = torch.randn(shapes("bhsd")[0], device=device, requires_grad=True)
    (first,) = torch.autograd.grad(brim.rope(q, None, cos, sin, rotary_dim=D)[0].pow(3).sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), q)
    y = oracle.rope(q, cos, sin, r=D)
    (f,) = torch.autograd.grad(y.pow(3).sum(), q, create_graph=True)
    (want,) = torch.autograd.grad(f.square().sum(), q)
    torch.testing.assert_close(second, want, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("inplace", [False, True])
def test_forward_mode_derivatives_are_refused_not_dropped(device, inplace):
    cos, sin = brim.rope_tables(S, D, device=device)
    x = torch.randn(shapes("bhsd")[0], device=device)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(NotImplementedError):
            brim.rope(dual, None, cos, sin, inplace=inplace)

    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(sin, torch.ones_like(sin))
        with pytest.raises(NotImplementedError):
            brim.rope(x, None, cos, dual, inplace=inplace)


def test_vmap_of_tensors_without_gradients(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    x = torch.randn(3, *shapes("bhsd")[0], device=device)
    got = torch.func.vmap(lambda one: brim.rope(one, None, cos, sin)[0])(x)
    assert torch.equal(got, torch.stack([brim.rope(one, None, cos, sin)[0] for one in x]))


@pytest.mark.parametrize("with_k", [True, False])
def test_torch_func_never_loses_a_gradient(device, with_k):
    cos, sin = brim.rope_tables(S, D, device=device)
    x = torch.randn(3, *shapes("bhsd")[0], device=device)
    rotate = lambda one: brim.rope(one, one * 1 if with_k else None, cos, sin)[0]
    transforms = [
        lambda: torch.func.vmap(rotate)(x.requires_grad_()),
        lambda: torch.func.vmap(torch.func.vmap(lambda one: rotate(one[None])))(x.requires_grad_()),
        lambda: torch.func.vmap(lambda one: brim.rope(one * 1, None, cos, sin, inplace=True)[0])(x.requires_grad_()),
        lambda: torch.func.grad(lambda one: rotate(one).sum())(x[0].detach()),
        lambda: torch.func.jvp(rotate, (x[0].detach(),), (x[1].detach(),)),
    ]
    for transform in transforms:
        with pytest.raises(NotImplementedError):
            transform()
    with torch.no_grad():
        transforms[0]()


def test_inference_tensors_change_in_inference_mode_only(device):
    cos, sin = brim.rope_tables(S, D, device=device)
    with torch.inference_mode():
        q = torch.randn(shapes("bhsd")[0], device=device)
    k, before = q.clone(), q.clone()
    for tensors in ((q, None), (k, q)):
        with pytest.raises(RuntimeError, match="inference mode"):
            brim.rope(*tensors, cos, sin, inplace=True)
    assert torch.equal(q, before)
    with torch.inference_mode():
        brim.rope(q, None, cos, sin, inplace=True)
        assert torch.equal(q, brim.rope(before, None, cos, sin)[0])
