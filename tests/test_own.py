"""Kernels and objectives of one's own, and what their base classes ask for."""

import pytest
import torch
from torch import nn

import chiaroscuro as cs
from chiaroscuro.kernels import Leaf
from chiaroscuro.models.model import Model
from chiaroscuro.objectives import Objective
from chiaroscuro.views import View
from oracles import naive
from tolerances import close
from zoo import BATCH_NEGATIVES, D, pair

N = 5


class Opaque(cs.Kernel):
    """The Laplacian kernel by one formula and nothing else."""

    def __init__(self, tau=0.5):
        super().__init__()
        self.tau = tau if isinstance(tau, nn.Module) else nn.Parameter(torch.tensor(tau).double())

    def log(self, z, w):
        square = (z[:, None] - w).square().sum(-1)
        zero = square == 0
        return -torch.where(zero, 1.0, square).sqrt().masked_fill(zero, 0.0) / self.tau


class Quartic(Leaf):
    """A formula of the squared distance, whose slope nobody wrote down."""

    statistic = "squared"

    def profile(self, x):
        return -x.square() - x


class Root(Leaf):
    """A formula with an infinite slope at equal points: the Laplacian kernel again, of tau^2."""

    statistic = "squared"
    decreasing = True

    def profile(self, x):
        return -x.sqrt()


class Bent(Leaf):
    """A formula of the scalar product."""

    statistic = "inner"

    def profile(self, x):
        return torch.sinh(x / 4)


class Cubes(Leaf):
    """A formula of the sum of third powers."""

    statistic = "power"
    p = 3.0

    def profile(self, x):
        return -torch.log1p(x)


def by_loop(log_k, negatives, z1, z2):
    """InfoNCE over explicit lists of candidates, of a formula of two vectors."""
    n, rows = len(z1), [*z1, *z2]
    losses = []
    for i in range(2 * n):
        chosen = torch.stack([log_k(rows[i], rows[j]) for j in naive.candidates(negatives, i, n)])
        losses.append(torch.logsumexp(chosen, 0) - log_k(rows[i], rows[(i + n) % (2 * n)]))
    return torch.stack(losses).mean()


FORMULAS = {
    "quartic": (Quartic(tau=2.0), lambda z, w: -(s := (z - w).square().sum() / 2).square() - s),
    "root": (Root(tau=0.25), lambda z, w: -(z - w).norm() / 0.5),
    "bent": (Bent(tau=0.5), lambda z, w: torch.sinh(z @ w / 0.5 / 4)),
    "cubes": (Cubes(tau=0.7), lambda z, w: -torch.log1p(((z - w).abs() ** 3).sum() / 0.7)),
    "opaque": (Opaque(0.5), lambda z, w: -(z - w).norm() / 0.5),
}


@pytest.mark.parametrize("negatives", BATCH_NEGATIVES)
@pytest.mark.parametrize("name", FORMULAS)
def test_a_kernel_of_ones_own_is_its_formula_in_value_and_gradient(name, negatives):
    kernel, log_k = FORMULAS[name]
    z1, z2 = pair(N)
    loss = cs.InfoNCE(kernel, BATCH_NEGATIVES[negatives])(z1, z2)
    right = by_loop(log_k, negatives, z1, z2)
    close(loss, right)
    for a, b in zip(naive.gradients(loss, z1, z2), naive.gradients(right, z1, z2), strict=True):
        close(a, b, what="gradient")


@pytest.mark.parametrize("tau", [0.5, [1.0, 0.7, 0.4, 1.5]], ids=repr)
def test_a_formula_with_an_infinite_slope_is_the_power_it_equals(tau):
    """Also at equal points, and with its temperature learnt."""
    (z1, z2), square = pair(N), lambda t: [x * x for x in t] if isinstance(t, list) else t * t
    with torch.no_grad():
        z2[0], z1[2] = z1[0], z1[3]
    own, built_in = Root(cs.Learnable(square(tau))), cs.Laplace(cs.Learnable(tau))
    for kernel in (own.double(), built_in.double()):
        kernel.tau.log_ratio.requires_grad_(True)
    values = [cs.InfoNCE(kernel)(z1, z2) for kernel in (own, built_in)]
    close(*values)
    first, second = (
        naive.gradients(value, z1, z2, kernel.tau.log_ratio)
        for value, kernel in zip(values, (own, built_in), strict=True)
    )
    close(first[0], second[0])
    close(first[1], second[1])
    close(2 * first[2], second[2])  # d tau^2 / tau^2 = 2 d tau / tau
    close(own.log(z1, z2), built_in.log(z1, z2))


def test_a_kernel_of_ones_own_in_mixtures_queues_windows_and_the_others(monkeypatch):
    """Beside tiled kernels, on a half of the dimensions, in every objective; in several blocks."""
    import chiaroscuro.pairwise.blocks as blocks

    monkeypatch.setattr(blocks, "ENTRIES", 16)
    z1, z2, q = pair(N, queue=3)
    own, known = Opaque(0.5), cs.Laplace(0.5)
    for build in (
        lambda k: cs.InfoNCE(cs.Sum(k, cs.Gaussian(0.5), weights=(2.0, 1.0))),
        lambda k: cs.InfoNCE(cs.Concat(cs.Cosine(0.5), k), cs.OtherView()),
        lambda k: cs.InfoNCE(k, cs.OnlyPositive(), anchors="first"),
    ):
        a, b = (build(k)(z1, z2, queue=q, window=(1, 4)) for k in (own, known))
        close(a, b)
        for g, h in zip(naive.gradients(a, z1, z2, q), naive.gradients(b, z1, z2, q), strict=True):
            close(g, h, what="gradient")
    y = torch.tensor([0, 0, 1, 1, 2])
    close(cs.SupCon(own)(z1, z2, y), cs.SupCon(known)(z1, z2, y))
    close(cs.Generalised("log1p", own)(z1, z2), cs.Generalised("log1p", known)(z1, z2))
    close(own.log_paired(z1, z2), known.log_paired(z1, z2))


def test_a_kernel_of_ones_own_learns_its_parameter_and_differentiates_twice():
    z1, z2 = pair(3)
    own = Opaque(0.5)
    f = lambda z1, z2, *_: cs.InfoNCE(own)(z1, z2)
    assert torch.autograd.gradcheck(f, (z1, z2, own.tau), fast_mode=True)
    assert torch.autograd.gradgradcheck(f, (z1, z2, own.tau), fast_mode=True)


def test_kernels_can_be_called():
    z1, z2 = pair(N)
    for kernel in (cs.Cauchy(0.5), Opaque(0.5), cs.Sum(cs.Gaussian(0.5), cs.Dot(1.0))):
        assert torch.equal(kernel(z1, z2), kernel.log(z1, z2))


# ---- what a base class asks for ----


class NoLog(cs.Kernel):
    pass


class NoStatistic(Leaf):
    def profile(self, x):
        return -x


class NoFormula(Leaf):
    statistic = "squared"


class NoLoss(Objective):
    pass


class NoCall(View):
    pass


class NoExample(Model):
    pass


LACKING = {
    NoLog: "log", NoStatistic: "statistic", NoLoss: "loss", NoCall: "__call__",
    NoExample: "example", cs.Kernel: "log", Objective: "loss",
}  # fmt: skip


@pytest.mark.parametrize(("cls", "part"), LACKING.items(), ids=lambda x: getattr(x, "__name__", x))
def test_a_class_that_lacks_a_part_fails_when_it_is_made(cls, part):
    with pytest.raises(TypeError, match=rf"{cls.__name__}.*{part}"):
        cls(*((0.5,) if issubclass(cls, Leaf) else ()))


def test_a_leaf_without_a_formula_names_both_ways():
    with pytest.raises(TypeError, match=r"`NoFormula` lacks a formula: define `profile\(x\)`, or"):
        NoFormula(0.5)


def test_an_objective_of_ones_own_needs_a_loss_alone():
    class Distance(Objective):
        def loss(self, batch):
            return (batch.z1 - batch.z2).square().sum(1).mean()

    z1, z2 = pair(N)
    close(Distance()(z1, z2), cs.BYOL(normalise=False)(z1, z2))


# ---- reductions ----


@pytest.mark.parametrize("negatives", BATCH_NEGATIVES)
@pytest.mark.parametrize("anchors", ["both", "first"])
def test_one_loss_per_anchor(negatives, anchors):
    z1, z2 = pair(N)
    objective = cs.InfoNCE(cs.Laplace(0.5), BATCH_NEGATIVES[negatives], anchors)
    each = objective(z1, z2, reduction="none")
    assert each.shape == ((2 * N,) if anchors == "both" else (N,))
    close(each.mean(), objective(z1, z2))
    close(objective(z1, z2, reduction="sum"), each.sum())
    one = cs.InfoNCE(cs.Laplace(0.5), BATCH_NEGATIVES[negatives], "first")
    close(N * one(z1, z2, window=(2, 3)), each[2])  # the third row of z1
    if anchors == "both":
        close(N * one(z2, z1, window=(1, 2)), each[N + 1])
    weights = torch.arange(1.0, 1 + len(each)).double()
    right = sum(w * objective(z1, z2, reduction="none")[i] for i, w in enumerate(weights))
    for a, b in zip(
        naive.gradients((weights * each).sum(), z1, z2), naive.gradients(right, z1, z2), strict=True
    ):
        close(a, b)


def test_one_loss_per_anchor_of_the_others():
    z1, z2 = pair(N)
    y = torch.tensor([3, 1, 1, 3, 3])
    for objective in (cs.SupCon(), cs.SupCon(cs.Gaussian(0.5))):
        each = objective(z1, z2, y, reduction="none")
        assert each.shape == (2 * N,)
        close(each.mean(), objective(z1, z2, y))
        order = torch.tensor([3, 0, 4, 1, 2])
        close(objective(z1[order], z2[order], y[order], reduction="none")[:N], each[:N][order])
    close(cs.BYOL()(z1, z2, reduction="none").mean(), cs.BYOL()(z1, z2))
    close(cs.Generalised()(z1, z2, reduction="none").mean(), cs.Generalised()(z1, z2))
    both = cs.Weighted((0.3, cs.InfoNCE()), (2.0, cs.SupCon()))
    close(both(z1, z2, y, reduction="none").mean(), both(z1, z2, y))
    on = cs.OnDims(cs.InfoNCE(), 0, 2)
    close(on(z1, z2, reduction="none"), cs.InfoNCE()(z1[:, :2], z2[:, :2], reduction="none"))


@pytest.mark.parametrize(
    "objective", [cs.VICReg(), cs.BarlowTwins(), cs.SpectralContrastive(), cs.AlignUniform()],
    ids=repr,
)  # fmt: skip
def test_a_loss_of_the_whole_batch_has_no_other_reduction(objective):
    z1, z2 = pair(N)
    name = type(objective).__name__
    with pytest.raises(cs.InputError, match=rf"`{name}` is a function of the whole batch"):
        objective(z1, z2, reduction="none")
    with pytest.raises(cs.InputError, match="received 'max'"):
        objective(z1, z2, reduction="max")


def test_only_the_positive_needs_a_queue():
    """Its loss without one is 0 whatever the batch: nothing would be learnt, in silence."""
    z1, z2 = pair(N)
    with pytest.raises(cs.InputError, match=r"`InfoNCE\(..., OnlyPositive\(\)\)` needs a queue.*5"):
        cs.InfoNCE(cs.Cosine(0.1), cs.OnlyPositive())(z1, z2)


# ---- names that others use ----


ALIASES = {
    "Cosine(temperature=0.07)": r"called `tau` here: `Cosine\(tau=0.07\)`",
    "Cosine(t=0.07)": "called `tau` here",
    "Gaussian(T=0.07)": "called `tau` here",
    "Gaussian(sigma=2.0)": r"`tau` is a variance: pass `tau=sigma\*\*2`",
    "Dot(scale=10)": "`tau` divides: pass `tau=1/scale`",
    "Cosine(logit_scale=14.3)": "`tau` divides: pass `tau=1/logit_scale`",
    "StudentT(df=3)": r"called `nu` here: `StudentT\(nu=3\)`",
    "InfoNCE(temperature=0.5)": r"kernel's `tau`: `InfoNCE\(Cosine\(tau=0.5\)\)`",
    "SupCon(temperature=0.1)": r"kernel's `tau`: `SupCon\(Cosine\(tau=0.1\)\)`",
    "InfoNCE(similarity=0)": "called `kernel` here",
    "BarlowTwins(lambda_param=5e-3)": "called `redundancy` here",
    "VICReg(std_coeff=25.0)": "called `variance` here",
    "Lp(exponent=3)": "called `p` here",
    "Laplace(tua=1.0)": "did you mean `tau`",
}


@pytest.mark.parametrize(("call", "says"), ALIASES.items(), ids=ALIASES)
def test_other_names_of_a_parameter_get_a_sentence(call, says):
    """The same from Python as from text."""
    with pytest.raises(cs.InputError, match=says):
        cs.parse(call)
    with pytest.raises(cs.InputError, match=says):
        eval(f"cs.{call}", {"cs": cs})  # noqa: S307 -- the table above


def test_signatures_stay_as_they_are():
    import inspect

    assert list(inspect.signature(cs.StudentT).parameters) == ["nu", "tau"]
    assert list(inspect.signature(cs.InfoNCE).parameters) == ["kernel", "negatives", "anchors"]
    assert D == 4


class Taxicab(cs.kernels.Kernel):
    """A kernel without a constructor."""

    def log(self, z, w):
        return -(z[:, None] - w[None]).abs().sum(dim=-1)


class OneColumn(cs.kernels.Kernel):
    """A kernel that forgets its second argument."""

    def log(self, z, w):
        return -z.square().sum(dim=1, keepdim=True)


def test_a_kernel_without_a_constructor_has_a_notation_and_an_equal():
    assert repr(cs.InfoNCE(Taxicab())).startswith("InfoNCE(kernel=Taxicab()")
    assert Taxicab() == Taxicab()
    z = torch.randn(2, 6, D, generator=torch.Generator().manual_seed(0))
    loss = cs.InfoNCE(Taxicab())
    both = torch.func.vmap(loss)(z, z + 0.1)
    torch.testing.assert_close(both, torch.stack([loss(a, a + 0.1) for a in z]))


def test_a_kernel_that_returns_no_matrix_is_refused_with_the_shapes():
    z = torch.randn(6, D)
    with pytest.raises(cs.InputError, match=r"`OneColumn\.log.*\(6, 6\) here; .* \(6, 1\)"):
        cs.InfoNCE(OneColumn())(z, z)
