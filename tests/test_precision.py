"""Float32 is as right as float32 can be: small temperatures, collapse, clusters, extreme lengths.

A similarity of size 1 is known to eps, so a logit to eps / tau. The bound on every error is
1e-5 + 4 eps / tau, relative to max(|loss|, 1), and for gradients to their natural scale
1 / (tau |z| sqrt(2n)).
"""

import math

import pytest
import torch

import chiaroscuro as cs
import chiaroscuro.pairwise.logsumexp as tiles
from oracles import naive
from tolerances import TOLERANCE, close, loosened

TAUS = (1e-4, 1e-3, 1e-2, 0.07, 0.5, 1.0, 10.0, 100.0)


# ---- batches ----


def unit(z):
    return z / z.norm(dim=1, keepdim=True)


def batch(kind: str, n: int, d: int, dtype=torch.float32):
    """Unit rows (but for `lengths`), paired, rounded to the dtype once."""
    g = torch.Generator().manual_seed(n)
    rows = lambda m: unit(torch.randn(m, d, generator=g, dtype=torch.float64))
    noise = rows(2 * n)
    if kind == "random":
        z = rows(2 * n)
    elif kind == "paired":
        z = unit(rows(n).repeat(2, 1) + 0.3 * noise)
    elif kind == "duplicates":
        z = rows(max(1, n // 3))[torch.arange(2 * n) % max(1, n // 3)]
    elif kind.startswith("spread"):
        z = unit(rows(1) + float(kind.split()[1]) * noise)
    elif kind == "clustered":
        z = unit(rows(3)[torch.arange(2 * n) % 3] + 0.02 * noise)
    elif kind == "tight clusters":
        z = unit(rows(3)[torch.arange(2 * n) % 3] + 1e-5 * noise)
    elif kind in ("lengths", "lengths and zeros"):
        z = noise * torch.logspace(-18, 18, 2 * n, dtype=torch.float64)[:, None]
        if kind == "lengths and zeros":
            z[:: max(2, n // 3)] = 0
    z = z.to(dtype)
    return z[:n].contiguous(), z[n:].contiguous()


# ---- errors ----


def errors(kernel, negatives, z1, z2, right, tau, weigh_rows):
    """Errors of the loss and of its gradient, in units of what they are relative to."""
    value, *gradients = right
    z1, z2 = (z.clone().requires_grad_() for z in (z1, z2))
    loss = cs.InfoNCE(kernel, negatives)(z1, z2)
    loss.backward()
    assert loss.dtype == torch.float32
    off = torch.cat([z.grad.double() - g for z, g in zip((z1, z2), gradients, strict=True)])
    true = torch.cat(gradients)
    if weigh_rows:  # a cosine's gradient is as long as its row is short
        lengths = torch.cat([z1, z2]).detach().double().norm(dim=1, keepdim=True)
        assert not off[lengths[:, 0] == 0].any(), "a zero row has a gradient"
        off, true = off * lengths, true * lengths
    scale = 1 / (tau * math.sqrt(len(off)))
    if getattr(kernel, "gamma", 1) < 1:  # r^(gamma-1) is steeper than 1/tau at near points
        scale = max(scale, float(true.norm()))
    return abs(float(loss.detach()) - value) / max(abs(value), 1), float(off.norm()) / scale


TILED = {"KEPT": 0, "TILE": 96, "TILE_OF_DIFFERENCES": 64, "SMALL": 0}


def misses(family, negatives, kind, n, d, taus, weigh_rows, monkeypatch):
    """One line for each error beyond its bound, over temperatures and paths."""
    found = []
    z1, z2 = batch(kind, n, d)
    for tau in taus:
        kernel, bound = family(tau), loosened("logits over tau", tau)
        right = naive.infonce_blocks(kernel, type(negatives).__name__, z1, z2)
        for path in ({}, TILED) if n < 1000 else ({},):  # large ones are tiled anyway
            with monkeypatch.context() as patch:
                for constant, value in path.items():
                    patch.setattr(tiles, constant, value)
                off = errors(kernel, negatives, z1, z2, right, tau, weigh_rows)
            found += [
                f"{what} of tau={tau}, {kind}, n={n}, {'tiled' if path else 'as it chooses'}: "
                f"error {error:.3g} > {bound:.3g}"
                for what, error in zip(("loss", "gradient"), off, strict=True)
                if not error <= bound
            ]
    return found


# ---- Cosine ----


@pytest.mark.parametrize("n", [1, 2, 3, 64])
@pytest.mark.parametrize(
    "kind",
    ["random", "paired", "duplicates", "spread 1e-3", "spread 1e-6", "clustered",
     "tight clusters", "lengths", "lengths and zeros"],
)  # fmt: skip
def test_cosine(kind, n, monkeypatch):
    assert misses(cs.Cosine, cs.AllButSelf(), kind, n, 32, TAUS, True, monkeypatch) == []


@pytest.mark.parametrize("kind", ["random", "spread 1e-3", "clustered", "lengths and zeros"])
def test_cosine_of_a_larger_batch(kind, monkeypatch):
    assert misses(cs.Cosine, cs.AllButSelf(), kind, 300, 32, TAUS, True, monkeypatch) == []


@pytest.mark.parametrize("kind", ["paired", "tight clusters"])
def test_cosine_of_a_batch_too_large_to_keep(kind, monkeypatch):
    taus = (1e-4, 0.07, 1.0)
    assert misses(cs.Cosine, cs.AllButSelf(), kind, 1100, 32, taus, True, monkeypatch) == []


@pytest.mark.parametrize("negatives", [cs.AllButPair(), cs.OtherView(), cs.SameView()], ids=repr)
@pytest.mark.parametrize("kind", ["paired", "spread 1e-3", "clustered", "lengths"])
def test_cosine_with_other_negatives(kind, negatives, monkeypatch):
    assert misses(cs.Cosine, negatives, kind, 64, 32, TAUS, True, monkeypatch) == []


@pytest.mark.parametrize("d", [2, 512])
def test_cosine_in_few_and_many_dimensions(d, monkeypatch):
    assert misses(cs.Cosine, cs.AllButSelf(), "paired", 64, d, TAUS, True, monkeypatch) == []


# ---- distances, on unit rows ----


FAMILIES = {
    "Gaussian": cs.Gaussian,
    "Laplace": cs.Laplace,
    "Exponential(.5)": lambda tau: cs.Exponential(0.5, tau),
    "Lp(1)": lambda tau: cs.Lp(1, tau),
    "Sum": lambda tau: cs.Sum(cs.Gaussian(tau), cs.Laplace(tau)),
    "Sum of far temperatures": lambda tau: cs.Sum(cs.Gaussian(tau), cs.Laplace(30 * tau)),
    "Concat": lambda tau: cs.Concat(cs.Gaussian(tau), cs.Laplace(tau)),
    "per dimension": lambda tau: cs.Gaussian([tau, 2 * tau] * 4),
    "Laplace per dimension": lambda tau: cs.Laplace([tau, 1.3 * tau] * 4),
    "Lp(1) per dimension": lambda tau: cs.Lp(1, [tau, 1.3 * tau] * 4),
    "Exponential(.5) per dimension": lambda tau: cs.Exponential(0.5, [tau, 1.3 * tau] * 4),
    "Cosine per dimension": lambda tau: cs.Cosine([tau, 2 * tau] * 4),
    "Dot": cs.Dot,
    "Cauchy": cs.Cauchy,
    "StudentT": lambda tau: cs.StudentT(3.0, tau),
    "Cauchy per dimension": lambda tau: cs.Cauchy([tau, 2 * tau] * 4),
    "Sum with Cauchy": lambda tau: cs.Sum(cs.Cauchy(tau), cs.Laplace(tau)),
}
KINDS = ["random", "paired", "duplicates", "spread 1e-3", "spread 1e-6", "clustered",
         "tight clusters"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_on_unit_rows(family, kind, monkeypatch):
    """Every other temperature: every two of family, kind and temperature meet."""
    taus = TAUS[(list(FAMILIES).index(family) + KINDS.index(kind)) % 2 :: 2]
    family = FAMILIES[family]
    assert misses(family, cs.AllButSelf(), kind, 64, 8, taus, False, monkeypatch) == []


@pytest.mark.parametrize(("n", "kind"), [(1, "paired"), (2, "duplicates"), (3, "spread 1e-3")])
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_on_few_unit_rows(family, n, kind, monkeypatch):
    assert misses(family, cs.AllButSelf(), kind, n, 8, TAUS, False, monkeypatch) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_on_unit_rows_of_a_larger_batch(family, monkeypatch):
    kind = ("paired", "clustered")[list(FAMILIES).index(family) % 2]
    taus, family = (1e-3, 0.5), FAMILIES[family]
    assert misses(family, cs.AllButSelf(), kind, 300, 8, taus, False, monkeypatch) == []


@pytest.mark.parametrize("family", ["Gaussian", "Laplace"])
def test_on_unit_rows_of_a_batch_too_large_to_keep(family, monkeypatch):
    family = FAMILIES[family]
    assert misses(family, cs.AllButSelf(), "clustered", 1100, 4, (1e-2,), False, monkeypatch) == []


# ---- half precision ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("tau", [0.01, 0.07, 0.5, 10.0])
@pytest.mark.parametrize("family", [cs.Cosine, cs.Gaussian, cs.Laplace], ids=lambda f: f.__name__)
def test_half_precision_loses_only_what_the_rounding_of_its_inputs_lost(family, tau, dtype):
    """Against float64 on the same rounded inputs; gradients are rounded to the dtype once."""
    for kind in ("paired", "spread 1e-3", "clustered"):
        z1, z2 = batch(kind, 64, 32, dtype)
        value, *right = naive.infonce_blocks(family(tau), "AllButSelf", z1, z2)
        z1, z2 = z1.requires_grad_(), z2.requires_grad_()
        loss = cs.InfoNCE(family(tau))(z1, z2)
        loss.backward()
        bound = loosened("logits over tau", tau)
        assert loss.dtype == torch.float32
        assert abs(float(loss.detach()) - value) <= bound * max(abs(value), 1)
        assert z1.grad.dtype == dtype
        off = torch.cat([z.grad.double() - g for z, g in zip((z1, z2), right, strict=True)])
        rounding = TOLERANCE[dtype] * float(torch.cat(right).norm())
        underflow = 2.0**-24 * math.sqrt(off.numel()) if dtype == torch.float16 else 0.0
        assert float(off.norm()) <= bound / (tau * math.sqrt(128)) + rounding + underflow


OBJECTIVES = [
    cs.InfoNCE(cs.Cosine(0.07)), cs.InfoNCE(cs.Laplace(0.1)), cs.SupCon(cs.Cosine(0.07)),
    cs.SupCon(cs.Gaussian(0.1)), cs.Generalised(), cs.VICReg(), cs.BYOL(), cs.BarlowTwins(),
    cs.Generalised(eta=lambda t: torch.exp(-t / 0.07)), cs.SpectralContrastive(),
    cs.AlignUniform(),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_autocast_does_not_reach_the_objective(objective, dtype):
    """Logits are divided by tau: a product in half precision would be wrong by eps / tau."""
    views = [z.requires_grad_() for z in batch("paired", 64, 32)]
    more = (torch.arange(64) % 5,) if "labels" in objective.takes else ()
    plain = objective(*views, *more)
    with torch.autocast("cpu", dtype=dtype):
        inside = objective(*views, *more)
    close(inside, plain)
    assert inside.dtype == torch.float32
    for a, b in zip(naive.gradients(inside, *views), naive.gradients(plain, *views), strict=True):
        close(a, b, what="gradient")


# ---- what is not a number ----


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("where", ["z1", "z2", "queue"])
def test_non_finite_input_is_named_by_tensor_and_row(where, dtype, poison):
    z1, z2 = batch("random", 9, 4, dtype)
    views = {"z1": z1, "z2": z2, "queue": batch("random", 9, 4, dtype)[0].clone()}
    views[where][6, 2] = poison
    views[where][8, 0] = poison
    with pytest.raises(cs.InputError, match=rf"2 of 9 rows of `{where}`.*row 6"):
        cs.InfoNCE()(**views)


def test_large_finite_input_is_accepted():
    """Its sum of squares overflows, which is nobody's NaN."""
    z1, z2 = batch("random", 9, 4)
    assert torch.isfinite(cs.InfoNCE()(z1 * 1e30, z2 * 1e30))
    z1, z2 = (1e4 * z.half() for z in (z1, z2))
    assert torch.isfinite(cs.InfoNCE()(z1, z2))
