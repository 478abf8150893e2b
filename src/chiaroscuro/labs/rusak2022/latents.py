"""Sec. 4.1: the data processes, true to their laws, and inverted.

Paper: rusak2022, Secs 2 and 4.1. Latents uniform in a box or on a sphere; in a pair content is the
same and style follows a conditional around it; g is linear, orthogonal, or an invertible network of
leaky ReLUs.

Judged: means and variances of the conditionals against closed forms, in standard errors; densities
against what is drawn (the mean of log p over draws is minus the entropy, known in closed form);
content equal to the bit; mixings inverted.

Deviations: the paper takes the laws as given and measures none of this. Beyond its normal and von
Mises-Fisher: truncated normal, Laplace, generalised normal and uniform conditionals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

MOMENTS = Stated(
    "C1.moments",
    "draws have the means and variances of their laws, within 5 standard errors",
    "Sec. 4.1, preliminaries (ours)",
    "exact laws",
    "z_mean < 5 and z_variance < 5",
    kind="remark",
)
DENSITY = Stated(
    "C1.density",
    "the mean log density of draws is minus the entropy of the law, within 5 standard errors",
    "Sec. 2: marginal and conditional (ours)",
    "exact laws",
    "z_entropy < 5",
    kind="remark",
)
CONTENT = Stated(
    "C1.content",
    "in a pair content is the same to the bit and style is not; latents stay in their space",
    "Sec. 2: p(z~|z) = delta(content) p(style)",
    "a delta",
    "moved_content == 0 and moved_style == 1 and outside == 0",
)
INVERSE = Stated(
    "C1.inverse",
    "mixings are inverted",
    "Assums 1, 2: bijective",
    "invertible",
    "error < 1e-6",
)
CLAIMS = (MOMENTS, DENSITY, CONTENT, INVERSE)


@dataclass(frozen=True)
class Settings:
    """Sizes.

    Args:
        seeds: of draws and mixings.
        d: 10, content: d_c; d is that of Sec. 4.1.
        n: draws of each law.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    d: int = 10
    content: int = 5
    n: int = 200_000


QUICK = Settings(seeds=(0,), n=20_000)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), n=1_000_000)

CENTRE = 0.3


def laws() -> dict[str, tuple[Any, Any, float, float, float]]:
    """Law, space, and mean, variance and entropy in one dimension around 0.3."""
    cut = stats.truncnorm(-CENTRE / 0.3, (1 - CENTRE) / 0.3, CENTRE, 0.3)
    bell = stats.gennorm(3.0, CENTRE, 0.4)
    data, line, box = cs.data, cs.data.Euclidean(1), cs.data.Box(1)
    flat = stats.uniform(CENTRE - 0.2, 0.4)
    return {
        "normal": (data.Normal(0.3), line, *_known(stats.norm(CENTRE, 0.3))),
        "truncated normal": (data.Normal(0.3, truncated=True), box, *_known(cut)),
        "Laplace": (data.Laplace(0.2), line, *_known(stats.laplace(CENTRE, 0.2))),
        "generalised normal, p = 3": (data.GeneralisedNormal(3.0, 0.4), line, *_known(bell)),
        "uniform": (data.Uniform(0.2), box, *_known(flat)),
    }


def _known(law: Any) -> tuple[float, float, float]:
    return float(law.mean()), float(law.var()), float(law.entropy())


def line(settings: Settings, seed: int) -> dict[str, Any]:
    """Standard errors between draws and closed forms, law by law; and histograms to draw."""
    errors: dict[str, Any] = {}
    for name, (law, space, mean, variance, entropy) in laws().items():
        stream = cs.data.streams.Bulk(np.random.default_rng(seed), settings.n)
        centre = np.full((settings.n, 1), CENTRE)
        z = law.draw(centre, space, stream)
        log_p = law.log_density(z, centre, space)
        root = math.sqrt(settings.n)
        square = (z[:, 0] - mean) ** 2
        spread = float(log_p.std())
        counts, edges = np.histogram(z[:, 0], bins=60, range=(-0.9, 1.5), density=True)
        middle = (edges[1:] + edges[:-1]) / 2
        density = np.exp(law.log_density(middle[:, None], np.full((60, 1), CENTRE), space))
        errors[name] = {
            "mean": abs(float(z.mean()) - mean) / float(z.std()) * root,
            "variance": abs(float(square.mean()) - variance) / float(square.std()) * root,
            # a flat density is its entropy exactly
            "entropy": abs(float(log_p.mean()) + entropy)
            / max(spread, 1e-9)
            * root
            * (spread > 1e-9),
            "drawn": [middle.tolist(), counts.tolist(), density.tolist()],
        }
    return errors


def sphere(settings: Settings, seed: int) -> dict[str, float]:
    """Von Mises and Fisher: mean cosine, its variance, and the entropy."""
    d, kappa = settings.d, 5.0
    centre = np.repeat(np.eye(1, d), settings.n, axis=0)
    law, space = cs.data.VonMisesFisher(kappa), cs.data.Sphere(d)
    z = law.draw(centre, space, cs.data.streams.Bulk(np.random.default_rng(seed), settings.n))
    w = z[:, 0]
    A = float(special.ive(d / 2, kappa) / special.ive(d / 2 - 1, kappa))
    variance = 1 - A**2 - (d - 1) / kappa * A
    order = d / 2 - 1
    log_c = order * math.log(kappa) - d / 2 * math.log(2 * math.pi)
    log_c -= math.log(special.iv(order, kappa))
    root, square = math.sqrt(settings.n), (w - A) ** 2
    log_p = law.log_density(z, centre, space)
    return {
        "mean": abs(float(w.mean()) - A) / float(w.std()) * root,
        "variance": abs(float(square.mean()) - variance) / float(square.std()) * root,
        "entropy": abs(float(log_p.mean()) - log_c - kappa * A) / float(log_p.std()) * root,
    }


def processes(settings: Settings, seed: int) -> dict[str, Any]:
    """Pairs of box and sphere: what moved, what left the space, and g inverted."""
    d, c, data = settings.d, settings.content, cs.data
    scores: dict[str, Any] = {"content": [], "style": [], "outside": [], "error": []}
    mixings = (
        data.Linear(d, seed=seed),
        data.Orthogonal(d, seed=seed),
        data.LeakyMLP(d, seed=seed),
    )
    for space, law in (
        (data.Box(d), data.Normal(0.25, truncated=True)),
        (data.Sphere(d), data.VonMisesFisher(5.0)),
    ):
        for g in mixings:
            process = data.Process(space, c, law, mixing=g)
            pairs = process.sample(min(settings.n, 20_000), seed=seed)
            moved = pairs.z1 != pairs.z2
            scores["content"].append(float(moved[:, :c].any(axis=1).mean()))
            scores["style"].append(float(moved[:, c:].all(axis=1).mean()))
            scores["outside"].append(float((~space.contains(pairs.z2)).mean()))
            scores["error"].append(float(np.abs(process.invert(pairs.x2) - pairs.z2).max()))
    return scores


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Everything over the seeds."""
    return {
        "line": [line(settings, seed) for seed in settings.seeds],
        "sphere": [sphere(settings, seed) for seed in settings.seeds],
        "processes": [processes(settings, seed) for seed in settings.seeds],
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Laws, content and mixings."""
    rows = [law for row in result["line"] for law in row.values()] + result["sphere"]
    of = lambda what: [x for row in result["processes"] for x in row[what]]
    return [
        MOMENTS.judge(
            z_mean=[row["mean"] for row in rows], z_variance=[row["variance"] for row in rows]
        ),
        DENSITY.judge(z_entropy=[row["entropy"] for row in rows]),
        CONTENT.judge(moved_content=of("content"), moved_style=of("style"), outside=of("outside")),
        INVERSE.judge(error=of("error")),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """What is drawn (bars) and the exact density (line) of each conditional around 0.3."""
    rows = result["line"][0]
    canvas, axes = style.canvas(1, len(rows), width=2.1, height=2.2)
    for i, (axis, (name, row)) in enumerate(zip(axes[0], rows.items(), strict=True)):
        at, counts, _ = row["drawn"]
        axis.bar(at, counts, at[1] - at[0], color=style.COLOURS[i], alpha=0.35)
        law, space = laws()[name][:2]
        fine = np.linspace(-0.9, 1.5, 2401)[:, None]  # walls and peaks lie between the bars
        density = np.exp(law.log_density(fine, np.full_like(fine, CENTRE), space))
        axis.plot(fine[:, 0], density, color=style.COLOURS[i])
        axis.axvline(CENTRE, color=style.GREY, linestyle=":", linewidth=1)
        style.label(axis, "z~ given z = 0.3", "density", name)
    return canvas
