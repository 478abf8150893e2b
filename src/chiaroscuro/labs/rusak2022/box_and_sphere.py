"""Eqs. (1), (4): InfoNCE on the sphere and in the box, with a temperature per dimension.

Paper: rusak2022, eqs. (1) and (4), Sec. 4.1. On the sphere similarities are scalar products of unit
vectors, in the box powers of an l_p norm; a temperature per dimension divides each term.

Judged: our objectives against the printed formulas, written out sample by sample in float64; what a
temperature per dimension is in the box, namely a scale of the outputs; and the limit of many
negatives.

Typo: eq. (1) prints the limit of L - log M + log |Z| on the left and L itself, which grows
with log M, on the right. The limit is the cross-entropy of the conditional p(z~|z) with the
encoder's q(z~|z) = k(z~, z) / int k; on the sphere with f = g^-1 and kappa = 1/tau it is the
entropy of von Mises and Fisher's law.

Deviations: none; eq. (1) is anchored at the positive x~, as printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy import special
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

SPHERE = Stated(
    "C2.sphere",
    "eq. (1) is InfoNCE(Cosine(tau), OtherView(), anchors='first') of (x~, x), tau per dimension",
    "eq. (1)",
    "eq. (1)",
    "error < 1e-10",
)
BOX = Stated(
    "C2.box",
    "eq. (4) is InfoNCE(Lp(p, tau), SameView(), anchors='first') of (x, x~), tau per dimension",
    "eq. (4), Sec. 4.1: l_p norm",
    "eq. (4)",
    "error < 1e-10",
)
SCALE = Stated(
    "C2.scale",
    "in the box a temperature per dimension is a scale: tau of z is 1 of z / tau^(1/p)",
    "App. C: the temperature only scales in the linear case",
    "a scale",
    "error < 1e-10",
)
LIMIT = Erratum(
    "C2.limit",
    "eq. (1)",
    "L - log M + log |Z| tends to the expression on the right, which is L.",
    "difference < 0.05",
    "it tends to the cross-entropy of p(z~|z) and q(z~|z), here an entropy.",
    "difference < 0.05",
    quote="lim_{M->inf} L_CL - log M + log |Z| = E[-log ...]",
    why="what follows is the loss itself, with its M: the definition of the loss and its limit "
    "were set in one line",
    kind="typo",
)
CLAIMS = (SPHERE, BOX, SCALE, LIMIT)


@dataclass(frozen=True)
class Settings:
    """Sizes.

    Args:
        seeds: of samples.
        n: pairs of the identities.
        d: 10 [Sec. 4.1].
        tau: ours; two values, for content and style.
        p: of the box's norm; 2 [Table 1] and others.
        m: negatives in the limit; anchors: over which it is a mean.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    n: int = 24
    d: int = 10
    tau: tuple[float, float] = (0.3, 0.8)
    p: tuple[float, ...] = (1.0, 2.0, 3.0)
    m: tuple[int, ...] = (10, 100, 1000, 10_000)
    anchors: int = 4000


QUICK = Settings(seeds=(0,), n=10, m=(10, 1000), anchors=4000)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), n=100, m=(10, 100, 1000, 10_000, 100_000))


def equation_1(z: Tensor, z2: Tensor, tau: Tensor) -> float:
    """Eq. (1), sample by sample: x~ against x and the x of the others."""
    total = 0.0
    for i in range(len(z)):
        similar = [float((z[j] * z2[i] / tau).sum()) for j in range(len(z))]
        total += math.log(sum(math.exp(s) for s in similar)) - similar[i]
    return total / len(z)


def equation_4(z: Tensor, z2: Tensor, tau: Tensor, p: float) -> float:
    """Eq. (4) for l_p, sample by sample: x against x~ and the x of the others."""
    total = 0.0
    for i in range(len(z)):
        w = [z2[i] if j == i else z[j] for j in range(len(z))]
        similar = [-float(((z[i] - each).abs() ** p / tau).sum()) for each in w]
        total += math.log(sum(math.exp(s) for s in similar)) - similar[i]
    return total / len(z)


def identities(settings: Settings, seed: int) -> dict[str, float]:
    """Differences between the objectives and the formulas."""
    d, half = settings.d, settings.d // 2
    taus = [settings.tau[0]] * half + [settings.tau[1]] * (d - half)
    tau = torch.tensor(taus, dtype=torch.float64)
    data = cs.data
    ball = data.Process(data.Sphere(d), half, data.VonMisesFisher(5.0)).sample(settings.n, seed)
    cube = data.Process(data.Box(d), half, data.Normal(0.25)).sample(settings.n, seed)
    u, u2, z, z2 = map(torch.from_numpy, (ball.z1, ball.z2, cube.z1, cube.z2))
    on_sphere = cs.InfoNCE(cs.Cosine(tau=taus), cs.OtherView(), anchors="first")
    errors = {
        "sphere": abs(float(on_sphere(u2, u)) - equation_1(u, u2, tau)),
        "box": 0.0,
        "scale": 0.0,
    }
    for p in settings.p:
        ours = cs.InfoNCE(cs.Lp(p=p, tau=taus), cs.SameView(), anchors="first")
        plain = cs.InfoNCE(cs.Lp(p=p, tau=1.0), cs.SameView(), anchors="first")
        value, root = float(ours(z, z2)), tau ** (1 / p)
        errors["box"] = max(errors["box"], abs(value - equation_4(z, z2, tau, p)))
        errors["scale"] = max(errors["scale"], abs(value - float(plain(z / root, z2 / root))))
    return errors


def limit(settings: Settings, seed: int) -> dict[str, Any]:
    """L - log M + log |Z| on the sphere for f = g^-1, style alone, kappa = 1 / tau."""
    d, tau = settings.d, settings.tau[0]
    process = cs.data.Process(cs.data.Sphere(d), 0, cs.data.VonMisesFisher(1 / tau))
    pairs = process.sample(settings.anchors, seed=seed)
    z, z2 = torch.from_numpy(pairs.z1), torch.from_numpy(pairs.z2)
    kernel = cs.Dot(tau=tau)
    attract = kernel.log_paired(z, z2)
    area = math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)
    order, kappa = d / 2 - 1, 1 / tau
    log_c = order * math.log(kappa) - d / 2 * math.log(2 * math.pi)
    log_c -= math.log(special.iv(order, kappa))
    A = float(special.iv(d / 2, kappa) / special.iv(order, kappa))
    losses = []
    for m in settings.m:
        negatives = torch.from_numpy(process.latents(m, seed=seed + 1))
        parts = [torch.logsumexp(kernel.log(part, negatives), 1) for part in z2.split(500)]
        loss = torch.logaddexp(attract, torch.cat(parts)) - attract
        losses.append(float(loss.mean()))
    return {
        "loss": losses,
        "normalised": [x - math.log(m) + area for x, m in zip(losses, settings.m, strict=True)],
        "entropy": -log_c - kappa * A,
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Identities and the limit over the seeds."""
    return {
        "m": list(settings.m),
        "identities": [identities(settings, seed) for seed in settings.seeds],
        "limit": [limit(settings, seed) for seed in settings.seeds],
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Both formulas, the scale and the limit."""
    of = lambda what: [row[what] for row in result["identities"]]
    rows = result["limit"]
    return [
        SPHERE.judge(error=of("sphere")),
        BOX.judge(error=of("box")),
        SCALE.judge(error=of("scale")),
        LIMIT.judge(
            printed={"difference": [abs(row["normalised"][-1] - row["loss"][-1]) for row in rows]},
            corrected={"difference": [abs(row["normalised"][-1] - row["entropy"]) for row in rows]},
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """The loss and its normalised form against the number of negatives."""
    canvas, axes = style.canvas(1, 1, width=4.2, height=2.9)
    axis, row = axes[0, 0], result["limit"][0]
    axis.plot(result["m"], row["loss"], "o-", label="L, the right side of eq. (1)")
    axis.plot(result["m"], row["normalised"], "s-", label="L - log M + log |Z|")
    axis.axhline(row["entropy"], color="black", linestyle=":", label="entropy of p(z~|z)")
    axis.set_xscale("log")
    axis.legend()
    style.label(axis, "negatives M", "nats", "sphere, f = g^-1, d_c = 0, kappa = 1/tau")
    return canvas
