"""Processes: laws true to moments and densities, mixings inverted, views pure in their row."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats

from chiaroscuro.data import (
    Box,
    Delta,
    Euclidean,
    GeneralisedNormal,
    Laplace,
    LeakyMLP,
    Linear,
    Normal,
    Orthogonal,
    Process,
    Sphere,
    Uniform,
    VonMisesFisher,
    open_data,
)
from chiaroscuro.data.streams import Bulk, ByRow
from chiaroscuro.errors import InputError

N = 20_000
LINE = {
    "normal": (Normal(0.3), Euclidean(1)),
    "laplace": (Laplace(0.3), Euclidean(1)),
    "generalised": (GeneralisedNormal(3.0, 0.4), Euclidean(1)),
    "cusp": (GeneralisedNormal(0.7, 0.1), Euclidean(1)),
    "uniform": (Uniform(0.4), Euclidean(1)),
    "truncated normal": (Normal(0.3, truncated=True), Box(1)),
    "truncated laplace": (Laplace(0.3, truncated=True), Box(1)),
    "truncated generalised": (GeneralisedNormal(4.0, 0.5, truncated=True), Box(1)),
    "wide": (Normal(3.0, truncated=True), Box(1)),
    "high power": (GeneralisedNormal(200.0, 0.4), Euclidean(1)),
    "heavy tails": (GeneralisedNormal(0.1, 0.5, truncated=True), Box(1)),
    "uniform in a box": (Uniform(0.4), Box(1)),
    "whole box": (Uniform(), Box(1)),
}
STREAMS = {
    "bulk": lambda n: Bulk(np.random.default_rng(0), n),
    "by row": lambda n: ByRow(np.arange(n), 0, 3),
}


def density(law, space, at, centre=0.3):
    z = np.atleast_1d(np.asarray(at, float))[:, None]
    return np.exp(law.log_density(z, np.full_like(z, centre), space))


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize(("law", "space"), LINE.values(), ids=LINE)
def test_draws_follow_the_density(law, space, stream):
    """Kolmogorov and Smirnov's distance between draws and the integrated density."""
    z = law.draw(np.full((N, 1), 0.3), space, stream(N))[:, 0]
    low, high = (0, 1) if isinstance(space, Box) else (-8, 8)
    grid = np.linspace(low, high, 40_001)
    p = density(law, space, grid)
    mass = integrate.cumulative_trapezoid(p, grid, initial=0)
    assert mass[-1] == pytest.approx(1, abs=2e-3)
    assert stats.kstest(z, lambda t: np.interp(t, grid, mass / mass[-1])).statistic < 0.016


@pytest.mark.parametrize("wall", [0.0, 1.0])
@pytest.mark.parametrize("law", [Normal(0.3, truncated=True), Uniform(0.4)], ids=str)
def test_draws_at_a_wall(law, wall):
    z = law.draw(np.full((N, 1), wall), Box(1), STREAMS["bulk"](N))[:, 0]
    grid = np.linspace(0, 1, 4001)
    mass = integrate.cumulative_trapezoid(density(law, Box(1), grid, wall), grid, initial=0)
    assert mass[-1] == pytest.approx(1, abs=2e-3)
    assert stats.kstest(z, lambda t: np.interp(t, grid, mass / mass[-1])).statistic < 0.016


@pytest.mark.parametrize(
    ("law", "reference"),
    [
        (Normal(0.3), stats.norm(0.2, 0.3)),
        (Laplace(0.3), stats.laplace(0.2, 0.3)),
        (GeneralisedNormal(3.0, 0.4), stats.gennorm(3.0, 0.2, 0.4)),
        (Normal(0.3, truncated=True), stats.truncnorm(-0.2 / 0.3, 0.8 / 0.3, 0.2, 0.3)),
    ],
    ids=["normal", "laplace", "generalised", "truncated"],
)
def test_densities_are_those_of_scipy(law, reference):
    at = np.linspace(0.01, 0.99, 7)
    assert density(law, Box(1), at, 0.2) == pytest.approx(reference.pdf(at), rel=1e-12)


@pytest.mark.parametrize("kappa", [0.0, 0.7, 5.0, 80.0])
@pytest.mark.parametrize("k", [1, 2, 3, 10])
def test_von_mises_fisher(k, kappa):
    """Mean cosine is a ratio of Bessel functions; the norm of the centre is kept."""
    law = VonMisesFisher(kappa)
    centre = 0.5 * np.repeat(np.eye(1, k, k - 1), N, axis=0)
    z = law.draw(centre, Sphere(k), Bulk(np.random.default_rng(1), N))
    assert np.linalg.norm(z, axis=1) == pytest.approx(0.5, rel=1e-12)
    cosine = (z @ centre[0]) / 0.25
    expected = special.ive(k / 2, kappa) / special.ive(k / 2 - 1, kappa) if kappa else 0.0
    assert abs(cosine.mean() - expected) < 5 / np.sqrt(N)
    uniform = Uniform().draw(centre, Sphere(k), Bulk(np.random.default_rng(2), N))
    volume = np.exp(-Uniform().log_density(uniform, centre, Sphere(k)))
    ratio = np.exp(law.log_density(uniform, centre, Sphere(k))) * volume
    if kappa <= 5 and k > 1:  # the density integrates to one over the sphere
        assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(N) + 1e-12
    if k == 3:
        area = 4 * np.pi * 0.5**2
        assert volume == pytest.approx(area)


def test_von_mises_fisher_density_is_scipys():
    mean = np.array([0.6, 0.0, 0.8])
    z = Uniform().draw(np.repeat(mean[None], 9, 0), Sphere(3), Bulk(np.random.default_rng(0), 9))
    ours = VonMisesFisher(4.0).log_density(z, np.repeat(mean[None], 9, 0), Sphere(3))
    assert ours == pytest.approx(stats.vonmises_fisher(mean, 4.0).logpdf(z))


@pytest.mark.parametrize("kappa", [1e6, 1e12, 1e17, 1e100])
@pytest.mark.parametrize("k", [2, 3, 10])
def test_a_large_concentration(k, kappa):
    """kappa times the squared distance from the axis is chi-squared, and so is the density."""
    c = np.repeat(np.eye(1, k), N, axis=0)
    z = VonMisesFisher(kappa).draw(c, Sphere(k), STREAMS["bulk"](N))
    far = kappa * (z[:, 1:] ** 2).sum(axis=1)
    assert stats.kstest(far, stats.chi2(k - 1).cdf).statistic < 0.016
    flat = (k - 1) / 2 * np.log(kappa / (2 * np.pi))
    said = VonMisesFisher(kappa).log_density(z, c, Sphere(k))
    assert said == pytest.approx(flat - far / 2, abs=1e-3)


@pytest.mark.parametrize(
    ("k", "kappa"), [(4, 1e-3), (50, 7.0), (300, 1e-5), (2000, 100.0), (2000, 2000.0), (9, 3e9)]
)
def test_the_constant_is_an_integral(k, kappa):
    """exp(kappa (w - 1)) over the sphere, slice by slice, in high dimensions too."""
    log_area = np.log(2) + (k - 1) / 2 * np.log(np.pi) - special.gammaln((k - 1) / 2)
    # in t = log((1 - w) / (1 + w)): smooth, and no end is far
    t = np.linspace(-60, 60, 400_001)
    below, above = 2 * special.expit(t), 2 * special.expit(-t)  # 1 - w and 1 + w
    log_f = -kappa * below + (k - 1) / 2 * np.log(below * above)
    log_mass = special.logsumexp(log_f) + np.log(t[1] - t[0]) - np.log(2)
    c = np.eye(1, k)
    said = VonMisesFisher(kappa).log_density(c, c, Sphere(k))[0]
    assert said == pytest.approx(-log_area - log_mass, rel=1e-9, abs=1e-7)


def test_off_the_sphere_there_is_no_density():
    process = Process(Sphere(4), 1, VonMisesFisher(2.0))
    pairs = process.sample(5)
    for law in (VonMisesFisher(2.0), Uniform()):
        process = Process(Sphere(4), 1, law)
        assert np.isfinite(process.log_conditional(pairs.z2, pairs.z1)).all()
        single = (z.astype(np.float32) for z in (pairs.z2, pairs.z1))
        assert np.isfinite(process.log_conditional(*single)).all()
        longer = pairs.z2 * [1, 1.01, 1.01, 1.01]
        assert (process.log_conditional(longer, pairs.z1) == -np.inf).all()


@pytest.mark.parametrize("space", [Box(6), Sphere(6)], ids=str)
def test_content_is_shared_and_style_is_not(space):
    style = Normal(0.2, truncated=True) if isinstance(space, Box) else VonMisesFisher(3.0)
    process = Process(space, 2, style)
    pairs = process.sample(2000)
    assert (pairs.z1[:, :2] == pairs.z2[:, :2]).all()
    assert (pairs.z1[:, 2:] != pairs.z2[:, 2:]).any(axis=1).all()
    assert space.contains(pairs.z1).all()
    assert space.contains(pairs.z2).all()
    assert process.factor_names == ("content_0", "content_1", *(f"style_{k}" for k in range(4)))
    assert np.isfinite(process.log_conditional(pairs.z2, pairs.z1)).all()
    moved = pairs.z2.copy()
    moved[:, 0] += 0.01
    assert (process.log_conditional(moved, pairs.z1) == -np.inf).all()


def test_soft_content_has_a_density():
    process = Process(Euclidean(3), 1, Normal(0.5), kept=Normal(0.1), marginal=Normal(1.0))
    z1, z2 = process.latents(5), process.latents(5, seed=1)
    stds = [0.1, 0.5, 0.5]
    expected = stats.norm(z1, stds).logpdf(z2).sum(axis=1)
    assert process.log_conditional(z2, z1) == pytest.approx(expected)
    assert process.log_marginal(z1) == pytest.approx(stats.norm.logpdf(z1).sum(axis=1))


MIXINGS = (Linear(10), Orthogonal(10), LeakyMLP(10), LeakyMLP(10, depth=5, slope=0.1, seed=3))


@pytest.mark.parametrize("g", MIXINGS, ids=str)
def test_mixings_are_inverted(g):
    z = np.random.default_rng(0).normal(size=(500, 10))
    assert np.abs(g.inverse(g(z)) - z).max() < 1e-9
    weights = g.weights if isinstance(g, LeakyMLP) else (g.weight,)
    assert max(np.linalg.cond(w) for w in weights) <= 10 + 1e-9


@pytest.mark.parametrize("g", MIXINGS, ids=str)
def test_log_det_is_that_of_the_jacobian(g):
    z, h = np.random.default_rng(0).normal(size=(3, 10)), 1e-7
    for row, said in zip(z, g.log_det(z), strict=True):
        J = (g(row + h * np.eye(10)) - g(row - h * np.eye(10))) / (2 * h)
        assert np.linalg.slogdet(J)[1] == pytest.approx(said, abs=1e-2)


def test_the_density_of_observations():
    process = Process(Euclidean(2), 0, Normal(1.0), marginal=Normal(1.0), mixing=Linear(2))
    x = np.random.default_rng(0).normal(size=(4, 2))
    A = process.mixing.weight
    expected = stats.multivariate_normal(np.zeros(2), A @ A.T).logpdf(x)
    assert process.log_density(x) == pytest.approx(expected)
    with pytest.raises(InputError, match="Sphere"):
        Process(Sphere(2), 0, VonMisesFisher(1.0)).log_density(x)


def test_a_process_is_a_data_set_and_its_own_notation():
    style = Normal((0.2, 0.3), truncated=True)
    process = Process(Box(4), 2, style, mixing=LeakyMLP(4), n=300, seed=5)
    data, again = process.dataset(), open_data(repr(process))
    assert again.source == process
    assert (again.column("x") == data.column("x")).all()
    assert len(data.part("test")) == 60
    truth = process.observe(data.factors.astype(float))
    assert data.column("x") == pytest.approx(truth, abs=1e-5)
    with pytest.raises(InputError, match="Process"):
        open_data("Box(4)")
    short = "Process(Box(4), 2, Normal((0.2, 0.3), truncated=True), mixing=LeakyMLP(4), n=300)"
    assert open_data(short).source == replace(process, seed=0)


def test_none_at_all():
    for space, style in ((Box(3), Normal(0.1, truncated=True)), (Sphere(3), VonMisesFisher(1.0))):
        assert Process(space, 1, style, mixing=LeakyMLP(3)).sample(0).x2.shape == (0, 3)


def test_large_mixings_take_little_memory():
    tracemalloc.start()
    assert Linear(400, condition=1e9).weight.shape == (400, 400)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**28  # five hundred of them at once took 2^30 and more
    with pytest.raises(InputError, match="condition number"):
        _ = Linear(100).weight


@pytest.mark.parametrize(
    "style",
    [Normal((0.2, 5.0, 0.1), truncated=True), Laplace(0.4, truncated=True), Uniform(0.3)],
    ids=str,
)
def test_a_view_does_not_depend_on_its_batch(style):
    data = Process(Box(4), 1, style, mixing=Linear(4), n=200).dataset()
    rows = np.random.default_rng(0).permutation(200)
    together = data.draw(rows, seed=3, epoch=2, view=1)
    for place in (0, 7, 199):
        alone = data.draw(rows[[place]], seed=3, epoch=2, view=1)
        assert (alone["factors"][0] == together["factors"][place]).all()
        assert alone["x"][0] == pytest.approx(together["x"][place], abs=1e-6)
    later = data.draw(rows, seed=3, epoch=3, view=1)
    assert (later["factors"][:, 0] == together["factors"][:, 0]).all()
    assert (later["factors"][:, 1:] != together["factors"][:, 1:]).all()
    anchor = data.draw(rows, seed=3, epoch=2, view=0)
    assert (anchor["x"] == data.column("x")[rows]).all()


def test_seeds():
    process = Process(Sphere(5), 2, VonMisesFisher(2.0))
    assert (process.sample(50, seed=1).z2 == process.sample(50, seed=1).z2).all()
    assert (process.sample(50, seed=1).z2 != process.sample(50, seed=2).z2).any()


@pytest.mark.parametrize(
    "style",
    [
        *(Normal(0.3), Normal(0.3, truncated=True), VonMisesFisher(5.0), Uniform(0.2)),
        GeneralisedNormal(3.0, 0.4, truncated=True),
    ],
    ids=str,
)
def test_pairs_stay_in_the_space(style):
    space = Sphere(10) if isinstance(style, VonMisesFisher) else Box(10)
    process = Process(space, 2, style)
    z = process.latents(20_000)
    w = process.positives(z)
    assert z.shape == w.shape == (20_000, 10)
    assert np.isfinite(w).all()
    if isinstance(space, Sphere):
        assert np.linalg.norm(w, axis=1) == pytest.approx(1, abs=1e-5)
    elif not isinstance(style, Normal) or style.truncated:
        assert (w >= space.low).all()
        assert (w <= space.high).all()


WRONG = {
    "too much content": (lambda: Process(Box(3), 4, Normal(0.1)), "4"),
    "another dimension": (lambda: Process(Box(3), 1, Normal(0.1), mixing=Linear(4)), "R^4"),
    "no law": (lambda: Process(Box(3), 1, 0.1), "0.1"),
    "negative": (lambda: Normal(-0.5), "-0.5"),
    "negative kappa": (lambda: VonMisesFisher(-1.0), "-1.0"),
    "no room": (lambda: Box(2, 1.0, 1.0), "1.0"),
    "no dimensions": (lambda: Sphere(0), "0"),
    "normal on a sphere": (lambda: Process(Sphere(3), 1, Normal(0.1)).sample(4), "Sphere"),
    "sphere in a box": (lambda: Process(Box(3), 1, VonMisesFisher(1.0)).sample(4), "Box"),
    "no walls": (
        lambda: Process(Euclidean(3), 1, Normal(0.1, truncated=True), marginal=Normal(1.0)).sample(
            4
        ),
        "box",
    ),
    "uniform in R^d": (lambda: Process(Euclidean(3), 1, Delta()).sample(4), "width"),
    "scales": (lambda: Process(Box(3), 1, Normal((0.1, 0.2, 0.3))).sample(4), "3"),
    "left the box": (
        lambda: Process(Box(3), 1, Normal(0.1, truncated=True)).positives(np.full((4, 3), 9.0)),
        "4 of 4",
    ),
    "not a number": (
        lambda: Process(Box(3), 1, Normal(0.1)).positives(np.full((4, 3), np.nan)),
        "4 of 4",
    ),
    "narrow": (lambda: Process(Box(3), 1, Normal(0.1)).positives(np.zeros((4, 2))), "(4, 2)"),
    "uniform around nothing": (
        lambda: Process(Box(1), 0, Uniform(0.1)).log_conditional([[0.5]], [[5.0]]),
        "1 are not",
    ),
    "marginal leaves the box": (
        lambda: Process(Box(3), 1, Delta(), marginal=Normal(1.0)),
        "truncated=True",
    ),
    "fewer than none": (lambda: Process(Box(3), 1, Normal(0.1)).sample(-1), "-1"),
    "negative seed": (lambda: Process(Box(3), 1, Normal(0.1)).sample(1, seed=-7), "-7"),
    "a function": (lambda: Process(Box(3), 1, Normal(0.1), mixing=len), "len"),
    "half a row": (lambda: Process(Box(3), 1, Normal(0.1), n=10.5), "10.5"),
    "no scales": (lambda: Normal(()), "()"),
    "endless kappa": (lambda: VonMisesFisher(1e200), "1e+200"),
    "walls in words": (lambda: Box(2, "low", 1.0), "low"),
    "no map": (lambda: Linear(0), "0"),
    "condition": (lambda: Linear(6, condition=1.01)(np.eye(6)), "condition number"),
    "slope": (lambda: LeakyMLP(3, slope=0.0), "0.0"),
}


@pytest.mark.parametrize(("call", "said"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_a_sentence(call, said):
    with pytest.raises(InputError) as error:
        call()
    assert said in str(error.value)
