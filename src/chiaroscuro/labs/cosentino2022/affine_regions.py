"""Sec. 5, eq. (11): a ReLU projector is piecewise affine, and fits tangents region by region.

Paper: cosentino2022, Sec. 5, eq. (11), Fig. 8: an MLP projector is a linear map in each region of
the encoder's space; wider and deeper ones have more regions, and so fit the displacements delta-h =
h2 - h~, from the hardest negative to the positive, locally where a linear projector has one
subspace for all.

Judged: g(h) = W_omega h + b_omega exactly; the regions that the data visit do not become fewer with
width and depth (as long as not every sample has one to itself); the local fit of delta-h is better
than the linear projector's, and better the wider.

Results. Affine pieces and their number are as stated. On ten fresh seeds every MLP leaves less of
delta-h unexplained than the linear projector (the widest by 0.10 +- 0.03, the deepest by 0.11 +-
0.01), and the widest less than the narrowest (by 0.08 +- 0.03), so that G8.fit holds; on three
seeds before, the last was open. Yet it is no fit: a subspace that has nothing to do with delta-h
leaves 1 - d_proj / d_enc = 0.75 unexplained, the linear projector 0.89, the MLPs 0.78 to 0.86.
Probably delta-h is here mostly the noise of the views, which a trained projector avoids and the
MLPs avoid less. The number alone does not show that tangents are fitted.

Eq. (11) has no biases "for the sake of clarity": here they are.

Deviations: the encoder's space is given, a curved surface (a torus) in d_enc dimensions with noise
as augmentation, and only the projector learns; the lab `projectors` has pictures. The paper gives
no numbers for this part.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style
from chiaroscuro.labs.trained import fitted

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

AFFINE = Stated(
    "G8.affine",
    "in its region the projector is an affine map, W_omega h + b_omega",
    "Sec. 5, eq. (11)",
    "closed form",
    "error < 1e-10",
)
MORE = Stated(
    "G8.regions",
    "the regions visited do not become fewer with width, nor with depth",
    "Sec. 5: the deeper and wider, the more regions",
    "larger number of regions",
    "least_step_width >= 0 and least_step_depth >= 0",
    enough="steps >= 400 and n_seeds >= 3",
)
FIT = Stated(
    "G8.fit",
    "the local fit of delta-h beats the linear projector's, and improves with width",
    "Sec. 5: the fitting of the displacement vectors is more refined",
    "more refined",
    "mean(widest) < mean(linear) and mean(deepest) < mean(linear) "
    "and mean(widest) < mean(narrowest)",
    enough="steps >= 400 and n_seeds >= 3",
)
CLAIMS = (AFFINE, MORE, FIT)


@dataclass(frozen=True)
class Settings:
    """Projectors on a given surface.

    Args:
        seeds: a surface and a start each.
        d_enc, d_proj: of the space and the projector; 512 and 128 in Sec. 2.
        widths: of one hidden layer; the first is twice d_proj, so that no local map lacks rank for
            want of units alone.
        depths: linear layers, at the width of `width`; 1 is the linear projector.
        width: of the hidden layers when depth varies.
        n: points of which regions are counted.
        noise: of the augmentation, against 1 of a coordinate of the surface.
        batch, beta: 128 (Fig. 3) and 2 (Sec. 2).
        steps, lr: of Adam.
    """

    seeds: tuple[int, ...] = tuple(range(5, 15))
    d_enc: int = 16
    d_proj: int = 4
    widths: tuple[int, ...] = (8, 16, 32, 64, 128)
    depths: tuple[int, ...] = (1, 2, 3, 4)
    width: int = 16
    n: int = 2000
    noise: float = 0.1
    batch: int = 128
    beta: float = 2.0
    steps: int = 600
    lr: float = 5e-3


QUICK = Settings(seeds=(0,), widths=(8, 32), depths=(1, 3), n=200, batch=32, steps=20)
LAPTOP = Settings()
PAPER = Settings(
    seeds=(0, 1, 2, 3, 4),
    d_enc=512,
    d_proj=128,
    widths=(256, 512, 1024, 2048),
    width=512,
    n=20000,
    steps=20000,
)


def surface(n: int, d: int, seed: int, step: int) -> Tensor:
    """Points of a torus, bent through d dimensions; the surface is the seed's, the points the
    step's."""
    frame = torch.Generator().manual_seed(seed)
    M = torch.randn(12, d, generator=frame) / math.sqrt(d)
    draw = torch.Generator().manual_seed(1000003 * seed + step + 1)
    a, b = 2 * math.pi * torch.rand(2, n, generator=draw)
    waves = [t for phase in (a, 2 * a, b, 2 * b, a + b, a - b) for t in (phase.cos(), phase.sin())]
    return torch.stack(waves, dim=1) @ M


def learnt(settings: Settings, depth: int, width: int, seed: int) -> dict[str, float]:
    """Train one projector, then look at its regions and its fit."""
    torch.manual_seed(seed)
    g = cs.models.Projector(
        settings.d_enc, settings.d_proj, depth, width, batch_norm=False, last="none"
    )
    objective = cs.InfoNCE(cs.Cosine(tau=1 / settings.beta), cs.AllButPair())
    noise = cs.views.Jitter(noise=settings.noise)

    def views(n: int, step: int) -> list[Tensor]:
        h = surface(n, settings.d_enc, seed, step)
        return [noise(h, range(n), seed, step, view)[0] for view in (0, 1)]

    pair = lambda step: views(settings.batch, step)
    fitted(g, objective, pair, settings.steps, settings.lr, falling=False)
    with torch.no_grad():
        loss = objective(*(g(h) for h in pair(settings.steps - 1)))
    h1, h2 = views(settings.n, settings.steps)
    with torch.no_grad():
        z1, z2 = g(h1), g(h2)
    two = {"h1": h1, "h2": h2, "z1": z1, "z2": z2}
    seen = cs.Embeddings(**{name: value.numpy() for name, value in two.items()})
    measures = cs.diagnostics.geometry(seen, g.eval(), seed=seed)
    few = h1[:50].double()
    maps = cs.diagnostics.affine_maps(g, few)
    with torch.no_grad():
        exact = g.double()(few).numpy()
    error = np.abs(np.einsum("nij,nj->ni", maps.W, few.numpy()) + maps.b - exact).max()
    return {
        "depth": depth,
        "width": width,
        "visited": measures.get("regions_visited", 1),
        "unexplained": measures["displacement_unexplained"],
        "hardest_distance": measures["hardest_distance"],
        "loss": float(loss),
        "affine_error": float(error / np.abs(exact).max()),
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """All widths and depths over the seeds."""
    wide = [(2, width) for width in settings.widths]
    deep = [(depth, settings.width) for depth in settings.depths]
    result = {
        name: [
            [
                keep(
                    f"{name} {depth} {width} {seed}",
                    lambda d=depth, w=width, s=seed: learnt(settings, d, w, s),
                )
                for depth, width in shapes
            ]
            for seed in settings.seeds
        ]
        for name, shapes in (("widths", wide), ("depths", deep))
    }
    return {**result, "steps": settings.steps, "n": settings.n}


def least_step(rows: list[list[dict[str, float]]], n: int) -> float:
    """The least growth of the mean number of regions, where fewer than nine in ten are alone."""
    means = [float(np.mean([one["visited"] for one in at])) for at in zip(*rows, strict=True)]
    steps = [b - a for a, b in itertools.pairwise(means) if a < 0.9 * n]
    return min(steps, default=0.0)


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Affine pieces, their number, their fit."""
    wide, deep = result["widths"], result["depths"]
    every = [one for rows in (wide, deep) for row in rows for one in row]
    many = {"steps": result["steps"], "n_seeds": len(wide)}
    fit = lambda rows, at: [row[at]["unexplained"] for row in rows]
    return [
        AFFINE.judge(error=max(one["affine_error"] for one in every)),
        MORE.judge(
            least_step_width=least_step(wide, result["n"]),
            least_step_depth=least_step(deep, result["n"]),
            **many,
        ),
        FIT.judge(
            linear=fit(deep, 0),
            narrowest=fit(wide, 0),
            widest=fit(wide, -1),
            deepest=fit(deep, -1),
            **many,
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Regions and local fit, by width and by depth: every seed, and the mean."""
    canvas, axes = style.canvas(1, 3, width=3.3)
    regions, *fits = axes[0]
    mean = lambda rows, what: [
        sum(one[what] for one in column) / len(column) for column in zip(*rows, strict=True)
    ]
    for i, (name, x) in enumerate((("widths", "width"), ("depths", "depth"))):
        rows, colour = result[name], style.COLOURS[i]
        at = [one[x] for one in rows[0]]
        fixed = f"width {rows[0][0]['width']}" if x == "depth" else "two layers"
        places = range(1, len(at) + 1)
        visited = mean(rows, "visited")
        regions.plot(places, visited, "o-", color=colour, label=f"{x}s, {fixed}")
        for place, value, height in zip(places, at, visited, strict=True):
            regions.annotate(
                str(value), (place, height), xytext=(0, (5, -13)[i]), textcoords="offset points",
                ha="center", color=colour,
            )  # fmt: skip
        for row in rows:
            fits[i].plot(places, [one["unexplained"] for one in row], "o", color=colour, ms=3)
        fits[i].plot(places, mean(rows, "unexplained"), color=colour, label="mean over seeds")
        fits[i].set_xticks(places, [str(value) for value in at])
        fits[i].set_ylim(0.7, 0.95)
        style.label(fits[i], x, r"share of $\delta h$ not explained locally", fixed)
    linear = mean(result["depths"], "unexplained")[0]
    for axis in fits:
        axis.axhline(linear, color=style.GREY, linestyle="--", linewidth=1)
        axis.annotate(
            "linear map", (1, linear), xycoords=("axes fraction", "data"), xytext=(-2, 3),
            textcoords="offset points", ha="right", color=style.GREY,
        )  # fmt: skip
    fits[0].legend(loc="lower left")
    regions.set_yscale("log")
    regions.margins(y=0.15)
    regions.set_xticks([])
    regions.legend(loc="lower right")
    style.label(
        regions,
        "network (its width or depth at each point)",
        f"regions visited by {result['n']} samples",
        "affine regions",
    )
    return canvas
