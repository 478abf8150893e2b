"""Laws of kernels, over the whole zoo: what they equal, what they declare, where they bend."""

import pytest
import torch

import chiaroscuro as cs
from chiaroscuro.kernels import Leaf
from oracles import naive
from tolerances import close
from zoo import KERNELS, PER_DIMENSION, D, double

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
some = lambda declared: {name: k for name, k in KERNELS.items() if declared(k)}


def points(n=7, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, D, generator=g, dtype=torch.float64).to(dtype)


def least_eigenvalue(kernel, z):
    """The smallest eigenvalue of the Gram matrix with unit diagonal: strictness is scale-free."""
    gram = kernel.log(z, z).detach().exp()
    scale = gram.diagonal().rsqrt()
    return float(torch.linalg.eigvalsh(gram * scale[:, None] * scale)[0])


# ---- the formula ----


@every_kernel
def test_log_is_the_formula(kernel):
    """tau multiplied instead of divided, a lost factor 1/2, halves exchanged."""
    kernel, z, w = double(kernel), points(5), points(6, seed=1)
    close(kernel.log(z, w), naive.log_k(kernel, z[:, None], w))


@every_kernel
def test_log_paired_is_the_diagonal(kernel):
    z, w = points(6), points(6, seed=1)
    close(kernel.log_paired(z, w), kernel.log(z, w).diagonal())


@every_kernel
def test_float32_and_half_inputs_give_float32(kernel):
    """Half precision is an input format: the formula of the rounded inputs, in float32."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        z, w = points(5, dtype=dtype), points(6, seed=1, dtype=dtype)
        log_k = kernel.log(z, w)
        assert log_k.dtype == torch.float32
        close(log_k, naive.log_k(kernel, z.double()[:, None], w.double()))
        close(kernel.log_paired(z, w[:5]), naive.log_k(kernel, z.double(), w[:5].double()))


@every_kernel
def test_gradient_is_that_of_finite_differences(kernel):
    """Also of the temperature, where it is learnable."""
    kernel = double(kernel)
    z, w = (points(3, seed=s).requires_grad_() for s in (0, 1))
    taus = list(kernel.parameters())
    assert torch.autograd.gradcheck(lambda z, w, *_: kernel.log(z, w), (z, w, *taus))
    assert torch.autograd.gradcheck(lambda z, w, *_: kernel.log_paired(z, w), (z, w, *taus))


@pytest.mark.parametrize("kernel", [cs.Gaussian(tau=0.5), cs.Laplace(tau=0.5)], ids=repr)
def test_near_points_far_from_the_origin_keep_their_digits(kernel):
    """|a|^2 + |b|^2 - 2 a.b cancels there: the matrix must not be worse than row by row."""
    z = (points(6) * 1e-3 + 100).float()
    w = (points(6, seed=1) * 1e-3 + 100).float()
    close(kernel.log(z, w), naive.log_k(kernel, z.double()[:, None], w.double()), 1e-7)
    close(kernel.log_paired(z, w), naive.log_k(kernel, z.double(), w.double()), 1e-7)


# ---- declared properties ----


@every_kernel
def test_symmetric(kernel):
    z, w = points(5), points(6, seed=1)
    close(kernel.log(z, w), kernel.log(w, z).T)


@every_kernel
def test_stationary_where_declared_and_only_there(kernel):
    z, w, shift = points(5), points(6, seed=1), points(1, seed=2)
    moved = (kernel.log(z + shift, w + shift) - kernel.log(z, w)).abs().max()
    assert (moved < 1e-9) == kernel.stationary


CONFIGURATIONS = {
    "random": points(40),
    "tight": points(12) * 0.05,
    "grid": torch.cartesian_prod(*[torch.tensor([0.0, 0.4, 1.0])] * D).double()[1:],
    "line": torch.linspace(0.1, 2, 20, dtype=torch.float64)[:, None] * torch.eye(D).double()[0],
}


@pytest.mark.parametrize("where", CONFIGURATIONS)
@pytest.mark.parametrize(
    "kernel", some(lambda k: k.positive_definite).values(), ids=some(lambda k: k.positive_definite)
)
def test_positive_definite_where_declared(kernel, where):
    assert least_eigenvalue(kernel, CONFIGURATIONS[where]) > -1e-12


refuted = some(lambda k: isinstance(k, Leaf) and not k.positive_definite)


@pytest.mark.parametrize("kernel", refuted.values(), ids=refuted)
def test_a_leaf_declared_not_positive_definite_has_a_counterexample(kernel):
    """Weights (1, -2, 1) on -h, 0, h give h^gamma (8 - 2^(gamma+1)) / tau < 0 for gamma > 2."""
    tau = float(naive.temperature(kernel.tau, D)[0].detach())
    h = (0.01 * tau) ** (1 / kernel.degree)
    z = torch.zeros(3, D, dtype=torch.float64)
    z[:, 0] = torch.tensor([-h, 0.0, h])
    c = torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
    assert float(c @ kernel.log(z, z).detach().exp() @ c) < -1e-3
    assert not kernel.strictly


@pytest.mark.parametrize("gamma", [0.1, 0.5, 1, 1.5, 1.99, 2, 2.01, 2.5, 3, 4])
@pytest.mark.parametrize("family", [cs.Exponential, cs.Lp])
def test_positive_definite_exactly_up_to_gamma_2(family, gamma):
    kernel = family(gamma, tau=1.0)
    assert kernel.positive_definite == kernel.strictly == (gamma <= 2)


strict = some(lambda k: k.strictly)


@pytest.mark.parametrize("kernel", strict.values(), ids=strict)
def test_strictly_where_declared(kernel):
    """Also at the corners of a rectangle, where a concatenation fails."""
    assert kernel.positive_definite
    for z in (points(8), RECTANGLE):
        assert least_eigenvalue(kernel, z) > 1e-8


RECTANGLE = torch.tensor(
    [[a, 0.7 * a, b, -b] for a in (0.5, 1.5) for b in (0.4, 2.0)], dtype=torch.float64
)
loose = some(lambda k: isinstance(k, cs.Concat))


@pytest.mark.parametrize("kernel", loose.values(), ids=loose)
def test_a_concatenation_is_singular_at_the_corners_of_a_rectangle(kernel):
    assert not kernel.strictly
    gram = kernel.log(RECTANGLE, RECTANGLE).detach().exp()
    opposite = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    close(gram @ opposite, torch.zeros(4), 1e-12 * float(gram.max()))


# ---- relations, bullet by bullet ----


TAUS = {"one tau": 0.3, "one per dimension": PER_DIMENSION}
twice = lambda tau: [2 * t for t in tau] if isinstance(tau, list) else 2 * tau


def same_kernel(k1, k2, z=None, w=None, shift=0.0):
    z, w = points(5) if z is None else z, points(6, seed=1) if w is None else w
    close(k1.log(z, w), k2.log(z, w) + shift)


@pytest.mark.parametrize("tau", TAUS.values(), ids=TAUS)
def test_gaussian_is_exponential_2_and_lp_2_of_twice_tau(tau):
    same_kernel(cs.Gaussian(tau), cs.Exponential(2, twice(tau)))
    same_kernel(cs.Gaussian(tau), cs.Lp(2, twice(tau)))


@pytest.mark.parametrize("tau", TAUS.values(), ids=TAUS)
def test_laplace_is_exponential_1(tau):
    same_kernel(cs.Laplace(tau), cs.Exponential(1, tau))


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 3])
def test_in_one_dimension_lp_is_exponential(p):
    z, w = points(5)[:, :1], points(6, seed=1)[:, :1]
    same_kernel(cs.Lp(p, 0.4), cs.Exponential(p, 0.4), z, w)


@pytest.mark.parametrize("tau", TAUS.values(), ids=TAUS)
def test_student_t_is_cauchy_at_1_and_gaussian_in_the_limit(tau):
    same_kernel(cs.StudentT(1, tau), cs.Cauchy(tau))
    z, w = points(5), points(6, seed=1)
    limit = cs.Gaussian(tau).log(z, w)
    apart = [(cs.StudentT(nu, tau).log(z, w) - limit).abs().max() for nu in (10, 1e3, 1e6)]
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] < 2e-3


falling = some(lambda k: getattr(k, "decreasing", False))


@pytest.mark.parametrize("kernel", falling.values(), ids=falling)
def test_decreasing_where_declared(kernel):
    """From 0 at distance 0, and ever lower: sums rely on it to do without a maximum."""
    x = torch.logspace(-12, 12, 200, dtype=torch.float64)
    log_k = kernel.profile(torch.cat([x.new_zeros(1), x]))
    assert log_k[0] == 0
    assert (log_k.diff() <= 0).all()


own = some(lambda k: isinstance(k, Leaf) and k.own)


@pytest.mark.parametrize("kernel", own.values(), ids=own)
def test_a_slope_written_by_hand_is_the_derivative(kernel):
    x = torch.logspace(-6, 6, 50, dtype=torch.float64)
    close(kernel.slope(x), Leaf.slope(kernel, x))
    given = [x.clone(), torch.empty_like(x)]  # whose memory may be used up
    for quick, plain in zip(
        kernel.k_and_slope(*given), (kernel.k(x), kernel.slope(x)), strict=True
    ):
        close(quick, plain)


def test_cosine_is_dot_of_directions():
    z, w = points(5), points(6, seed=1)
    u, v = z / z.norm(dim=1, keepdim=True), w / w.norm(dim=1, keepdim=True)
    close(cs.Cosine(0.3).log(z, w), cs.Dot(0.3).log(u, v))
    close(cs.Cosine(PER_DIMENSION).log(z, w), cs.Dot(PER_DIMENSION).log(u, v))


def test_on_unit_vectors_gaussian_is_cosine_times_a_constant():
    tau = 0.3
    z, w = (x / x.norm(dim=1, keepdim=True) for x in (points(5), points(6, seed=1)))
    same_kernel(cs.Gaussian(tau), cs.Cosine(tau), z, w, shift=-1 / tau)


def test_dot_is_gaussian_up_to_the_norms():
    tau, z, w = 0.8, points(5), points(6, seed=1)
    norms = (z.square().sum(1)[:, None] + w.square().sum(1)) / (2 * tau)
    close(cs.Dot(tau).log(z, w), cs.Gaussian(tau).log(z, w) + norms)


def test_a_sum_of_one_is_that_one():
    same_kernel(cs.Sum(cs.Laplace(0.3)), cs.Laplace(0.3))


def test_a_sum_is_the_weighted_sum():
    z, w = points(5), points(6, seed=1)
    k1, k2 = cs.Gaussian(0.5), cs.Dot(2.0)
    expected = 0.25 * k1.log(z, w).exp() + 3 * k2.log(z, w).exp()
    close(cs.Sum(k1, k2, weights=(0.25, 3.0)).log(z, w).exp(), expected)


def test_concat_of_points_that_agree_in_the_second_half_is_first_plus_one():
    z, w = points(5), points(6, seed=1)
    z[:, 2:] = w[:, 2:] = torch.tensor([0.3, -0.2])
    k = cs.Concat(cs.Gaussian(0.5), cs.Laplace(0.5))
    close(k.log(z, w).exp(), cs.Gaussian(0.5).log(z[:, :2], w[:, :2]).exp() + 1)


def test_concat_gives_the_first_half_to_the_first():
    """The halves are swapped between two sections of the paper; here first means first."""
    z, w = torch.zeros(1, 4).double(), torch.tensor([[0.0, 0.0, 3.0, 4.0]]).double()
    k = cs.Concat(cs.Gaussian(0.5), cs.Laplace(0.5))
    close(k.log(z, w).exp(), torch.tensor([[1 + torch.tensor(-10.0).double().exp()]]))


@pytest.mark.parametrize("init", [0.07, PER_DIMENSION], ids=repr)
@pytest.mark.parametrize("least", [0.0, 0.01])
def test_a_learnable_temperature_starts_as_the_plain_number(init, least):
    """In float64 too: the parameter may be float32, the number it starts from is not."""
    z, w = points(5), points(6, seed=1)
    close(cs.Gaussian(cs.Learnable(init, least=least)).log(z, w), cs.Gaussian(init).log(z, w))


def test_a_learnable_temperature_never_falls_to_its_floor():
    tau = cs.Learnable(0.07, least=0.01)
    with torch.no_grad():
        tau.log_ratio.fill_(-5.0)
    assert 0.01 < float(tau.value().detach()) < 0.011
    tau.value().backward()
    assert float(tau.log_ratio.grad) > 0


# ---- where it bends: coincident points, zero rows, extreme norms ----


COINCIDENT = [cs.Exponential(g, tau=0.5) for g in (0.1, 0.5, 1, 1.5, 2, 3)]
COINCIDENT += [cs.Lp(p, tau=0.5) for p in (0.3, 0.5, 1, 1.5, 2, 3)]
COINCIDENT += [cs.Exponential(g, tau=PER_DIMENSION) for g in (0.1, 0.5)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kernel", [*COINCIDENT, *KERNELS.values()], ids=repr)
def test_coincident_points_pull_with_zero(kernel, dtype):
    """The power of a zero distance has an infinite slope: masked afterwards it would be NaN."""
    kernel = double(kernel)
    z = points(4, dtype=dtype).requires_grad_()
    w = points(4, dtype=dtype)[[1, 0, 2, 2]].requires_grad_()
    for value in (kernel.log(z, w), kernel.log_paired(z, w)):
        found = naive.gradients(value.sum(), z, w)
        z64, w64 = (x.detach().double().requires_grad_() for x in (z, w))
        logs = naive.log_k(kernel, z64[:, None] if value.ndim == 2 else z64, w64)
        for a, b in zip(found, naive.gradients(logs.sum(), z64, w64), strict=True):
            close(a, b)


@pytest.mark.parametrize("scale", [0.0, 1e-45, 1e-41, 1e-38, 1e-30, 1e30])
def test_where_the_loss_is_finite_its_gradient_is(scale):
    """The slope of the cosine is 1 / |z|, which no number holds where z is subnormal."""
    z, w = ((scale * points(4).float()).requires_grad_() for _ in range(2))
    loss = cs.InfoNCE(cs.Cosine(tau=0.5))(z, w)
    assert torch.isfinite(loss)
    for slope in torch.autograd.grad(loss, (z, w)):
        assert torch.isfinite(slope).all()


@pytest.mark.parametrize("kernel", COINCIDENT, ids=repr)
def test_a_point_with_itself_is_1(kernel):
    z = points(4).float()
    assert torch.equal(kernel.log_paired(z, z), torch.zeros(4))
    assert torch.equal(kernel.log(z, z).diagonal(), torch.zeros(4))


@pytest.mark.parametrize("tau", [0.5, PER_DIMENSION], ids=repr)
def test_a_zero_row_has_cosine_0_and_gradient_0(tau):
    z, w = points(3).requires_grad_(), points(3, seed=1).requires_grad_()
    with torch.no_grad():
        z[1] = 0
    log_k = cs.Cosine(tau).log(z, w)
    assert torch.equal(log_k[1], torch.zeros(3))
    gz, gw = naive.gradients(log_k.sum(), z, w)
    assert torch.equal(gz[1], torch.zeros(D))
    assert gw.isfinite().all()
    assert gz[0].abs().max() > 0


@pytest.mark.parametrize("size", [1e-18, 1e-10, 1.0, 1e10, 1e18])
def test_cosine_does_not_see_lengths(size):
    """Squares of such entries leave the range of float32."""
    z, w = points(5, dtype=torch.float32), points(6, seed=1, dtype=torch.float32)
    expected = naive.log_k(cs.Cosine(0.5), (z * size).double()[:, None], w.double())
    close(cs.Cosine(0.5).log(z * size, w), expected)
