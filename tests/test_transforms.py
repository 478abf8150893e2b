"""Objectives under `torch.func` and `torch.compile`, and the precision that a user has set."""

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import TorchDispatchMode

import chiaroscuro as cs
from chiaroscuro.numerics import full_precision, product
from tolerances import close
from zoo import KERNELS, OBJECTIVES, call, double, exported, extras, instances, labels, pair

every_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
N = 5


def gradients(objective, z1, z2):
    value = call(objective, z1, z2)
    found = torch.autograd.grad(value, (z1, z2), allow_unused=True)
    return [torch.zeros_like(z1) if g is None else g for g in found]


@every_objective
def test_func_grad_and_jacrev(objective):
    objective, (z1, z2) = double(objective), pair(N)
    right = gradients(objective, z1, z2)
    f = lambda a, b: call(objective, a, b)
    for transform in (torch.func.grad, torch.func.jacrev):
        found = transform(f, argnums=(0, 1))(z1.detach(), z2.detach())
        for a, b in zip(found, right, strict=True):
            close(a, b, what=transform.__name__)


@every_objective
def test_the_gradient_is_differentiable_under_func(objective):
    """Forward over reverse has no way through the tiles; reverse over reverse has."""
    objective, (z1, z2) = double(objective), [z.detach() for z in pair(N)]
    f = lambda a: call(objective, a, z2)
    found = torch.func.grad(lambda a: torch.func.grad(f)(a).square().sum())(z1)
    z = z1.clone().requires_grad_()
    (g,) = torch.autograd.grad(f(z), z, create_graph=True)
    (right,) = torch.autograd.grad(g.square().sum(), z)
    close(found, right, 1e-8)


@pytest.mark.parametrize("name", KERNELS)
def test_vmap_and_jacrev_of_a_kernel(name):
    """The matrix of a kernel, batch by batch, and its Jacobian."""
    kernel = double(KERNELS[name])
    batches = [[z.detach() for z in pair(3, seed=s)] for s in range(2)]
    z, w = (torch.stack(views) for views in zip(*batches, strict=True))
    for found, views in zip(torch.vmap(kernel)(z, w), batches, strict=True):
        close(found, kernel(*views), 1e-8, what=name)
    a, b = batches[0]
    right = torch.autograd.functional.jacobian(lambda x: kernel(x, b), a)
    close(torch.func.jacrev(lambda x: kernel(x, b))(a), right, 1e-8, what=name)


@every_objective
def test_vmap_over_batches(objective):
    batches = [[z.detach() for z in pair(N, dtype=torch.float32, seed=s)] for s in range(3)]
    z1, z2 = (torch.stack(views) for views in zip(*batches, strict=True))
    y = labels(N).repeat(3, 1)
    found = torch.vmap(lambda a, b, y: call(objective, a, b, y))(z1, z2, y)
    for value, views in zip(found, batches, strict=True):
        close(value, call(objective, *views).double(), 2e-6)


def test_a_gradient_per_batch():
    """vmap of grad: what influence functions and meta-learning do."""
    objective = cs.InfoNCE(cs.Gaussian(0.5))
    batches = [[z.detach() for z in pair(N, seed=s)] for s in range(3)]
    z1, z2 = (torch.stack(views) for views in zip(*batches, strict=True))
    found = torch.vmap(torch.func.grad(lambda a, b: objective(a, b)))(z1, z2)
    for g, (a, b) in zip(found, batches, strict=True):
        a = a.requires_grad_()
        close(g, torch.autograd.grad(objective(a, b), a)[0])


COMPILED = [
    *(objective for cls in exported(cs.Objective) for objective in instances(cls)[:1]),
    *(cs.InfoNCE(instances(cls)[0]) for cls in exported(cs.Kernel)),
    cs.DINO(centring="sinkhorn"),
    cs.InfoNCE(cs.Gaussian([1.0, 0.7, 0.4, 1.5]), cs.AllButPair()),
    cs.InfoNCE(cs.Sum(cs.Laplace(0.5), cs.Cauchy(cs.Learnable(0.5))), cs.OtherView(), "first"),
    cs.Debiased(beta=0.5),
    cs.Weighted((1.0, cs.SpectralContrastive()), (0.5, cs.OnDims(cs.InfoNCE(), 0, 2))),
]


@pytest.mark.parametrize("objective", COMPILED, ids=repr)
def test_compiled_without_a_graph_break(objective):
    """Traced whole, forward and backward, by the compiler's own autograd."""
    torch._dynamo.reset()
    z1, z2 = pair(N, dtype=torch.float32)
    right = [call(objective, z1, z2), *gradients(objective, z1, z2)]
    more = extras(objective, z1)
    f = torch.compile(lambda a, b: objective(a, b, **more), fullgraph=True, backend="aot_eager")
    value = f(z1, z2)
    found = torch.autograd.grad(value, (z1, z2), allow_unused=True)
    found = [value, *(torch.zeros_like(z1) if g is None else g for g in found)]
    for a, b in zip(found, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_the_plain_way_equals_the_tiles_for_every_kernel():
    """What runs under transforms is another piece of code: equal in value and gradient."""
    for name, kernel in KERNELS.items():
        z1, z2, q = pair(4, queue=2)
        objective = cs.InfoNCE(double(kernel))
        right = torch.autograd.grad(objective(z1, z2, queue=q), (z1, z2, q))
        found = torch.func.grad(lambda *views: objective(views[0], views[1], queue=views[2]),  # noqa: B023
                                argnums=(0, 1, 2))(*(x.detach() for x in (z1, z2, q)))  # fmt: skip
        for a, b in zip(found, right, strict=True):
            close(a, b, 1e-8, what=name)


# ---- the precision of products ----


@pytest.fixture
def products():
    """Where torch keeps the precision of products, put back afterwards."""
    places = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = [place.fp32_precision for place in places]
    yield places
    for place, value in zip(places, before, strict=True):
        place.fp32_precision = value


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_reduced_products_are_off_inside_and_back_afterwards(kind, products):
    """The older getter raises once the newer setting is used: nothing may ask it."""
    place = products[0 if kind == "cuda" else 1]
    place.fp32_precision = "tf32"
    with full_precision(torch.device(kind)):
        assert place.fp32_precision == "ieee"
    assert place.fp32_precision == "tf32"
    with pytest.raises(ZeroDivisionError), full_precision(torch.device(kind)):
        1 / 0  # noqa: B018
    assert place.fp32_precision == "tf32"


def test_a_loss_with_reduced_products_set(products):
    z1, z2 = pair(64, d=32, dtype=torch.float32)
    right = cs.InfoNCE(cs.Cosine(0.01))(z1, z2)
    products[1].fp32_precision = "bf16"
    close(cs.InfoNCE(cs.Cosine(0.01))(z1, z2), right.double())


class Products(TorchDispatchMode):
    """Inside, every matrix product notes its formats and what precision is set."""

    def __init__(self, place):
        super().__init__()
        self.place, self.seen = place, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ in ("mm", "bmm", "addmm", "addmm_", "baddbmm"):
            wide = all(x.dtype in (torch.float32, torch.float64) for x in args if x.numel())
            self.seen.append((wide, self.place.fp32_precision))
        return function(*args, **(kwargs or {}))


MULTIPLYING = [
    cs.BarlowTwins(), cs.VICReg(), cs.SpectralContrastive(), cs.AlignUniform(), cs.Generalised(),
    cs.InfoNCE(cs.Cosine(0.07)), cs.InfoNCE(cs.Gaussian(0.5)), cs.SupCon(), cs.Debiased(),
]  # fmt: skip


@pytest.mark.parametrize("objective", MULTIPLYING, ids=repr)
def test_products_are_whole_both_ways(objective, products):
    """A gradient is computed after the loss has returned, perhaps with autocast around it."""
    z1, z2 = pair(N, dtype=torch.float32)
    products[1].fp32_precision = "bf16"
    with Products(products[1]) as products_of, torch.autocast("cpu", torch.bfloat16):
        call(objective, z1, z2).backward()
    assert products_of.seen
    assert set(products_of.seen) == {(True, "ieee")}
    assert products[1].fp32_precision == "bf16"


def test_a_kernel_alone_is_whole_both_ways(products):
    z, w = pair(N, dtype=torch.float32)
    products[1].fp32_precision = "bf16"
    for kernel in (cs.Cosine(0.5), cs.Gaussian(0.5)):
        with Products(products[1]) as products_of, torch.autocast("cpu", torch.bfloat16):
            kernel(z, w).sum().backward()
        assert set(products_of.seen) == {(True, "ieee")}, repr(kernel)


@pytest.mark.parametrize(
    ("objective", "count"),
    [
        (cs.InfoNCE(cs.Cosine(0.07)), 3),
        (cs.InfoNCE(cs.Laplace(0.5)), 3),
        (cs.BarlowTwins(), 3),
        (cs.VICReg(), 3),
        (cs.SpectralContrastive(), 6),
    ],
    ids=lambda x: repr(x),
)
def test_compiled_products_are_operations_of_their_own(objective, count):
    """Traced code cannot set the precision: all its products are an operation that does."""
    torch._dynamo.reset()
    targets = []

    def compiler(graph, inputs):
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    z1, z2 = pair(N, dtype=torch.float32)
    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler)
    torch.compile(objective, fullgraph=True, backend=backend)(z1, z2).backward()
    assert sum("chiaroscuro.product" in name for name in targets) == count
    assert not [name for name in targets if {"mm", "bmm", "addmm"} & set(name.split("."))]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's forward mode
def test_a_product_has_every_derivative():
    a, b = (torch.randn(k, 3, dtype=torch.float64, requires_grad=True) for k in (4, 2))
    assert torch.autograd.gradcheck(product, (a, b), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(product, (a, b))
    assert torch.autograd.gradcheck(lambda a: product(a, b.detach()), (a,), check_forward_ad=True)
    stack = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: product(z.mT, z.mT), (stack,))


def test_the_product_of_compiled_losses_is_not_reduced(products, monkeypatch):
    place, seen = products[1], []
    place.fp32_precision = "bf16"
    a, b = (torch.randn(4, 3, requires_grad=True) for _ in range(2))
    multiply = torch.Tensor.__matmul__

    def recording(x, y):
        seen.append(place.fp32_precision)
        return multiply(x, y)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "__matmul__", recording)
        torch.ops.chiaroscuro.product(a, b).sum().backward()
    assert seen == ["ieee"] * 3
    assert place.fp32_precision == "bf16"
    torch.testing.assert_close(a.grad, b.detach().sum(dim=0).expand(4, 3))
