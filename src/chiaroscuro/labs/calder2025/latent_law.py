"""Prop. 2.1 and A.1: once the map is invariant, losses see the latent law alone.

Paper: calder2025, Prop. 2.1 (NT-Xent) and A.1 (VICReg, BYOL).

Two data laws that share nothing: four tight clusters on a line, and one broad bump; in both, views
add noise in further coordinates. Each law has its own invariant map, its distribution function
wound around the circle, so that both end in the same latent law (in another order). All losses
must then agree to 1e-10; with a map that is not invariant they must not (a control that can fail).

Erratum: Prop. 2.1 writes the numerator of eq. (1) without dividing by exp(sim(x, x)/tau) =
exp(1/tau): an invariant map leaves exp((sim - 1)/tau), not exp(sim/tau). What the proposition is
for, that the loss sees the latent law alone, holds (V2.same); whether the minimisers differ is not
asked here.

Deviations: BYOL's predictor q is one fixed random linear map; eq. (1) is a mean over samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Stated, at_once, style
from chiaroscuro.labs.calder2025.generalised import equation_1

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

SAME = Stated(
    "V2.same",
    "for an invariant map NT-Xent, VICReg and BYOL depend on the latent law alone",
    "Prop. 2.1, A.1",
    "independent of the data",
    "nt_xent < 1e-10 and vicreg < 1e-10 and byol < 1e-10",
    kind="definition",
)
CONTROL = Stated(
    "V2.control",
    "for a map that is not invariant the same losses do depend on the data",
    "Prop. 2.1, its hypothesis (ours)",
    "not stated",
    "nt_xent > 1e-3 and vicreg > 1e-3 and byol > 1e-3",
    kind="empirical",
)
EXPONENT = Erratum(
    "V2.exponent",
    "Prop. 2.1",
    "for an invariant map eq. (1) is E log(1 + 2 E[1 exp(sim/tau)]).",
    "error < 1e-10",
    "for an invariant map eq. (1) is E log(1 + 2 E[1 exp((sim - 1)/tau)]).",
    "error < 1e-10",
    quote="Applying a change of variables, we obtain the following reformulation from eq. (1): "
    "min_f E_{x ~ f#mu} log(1 + 2 E_{y ~ f#mu}[1_{x != y} exp(sim_f(x,y)/tau)])",
    why="for an invariant map the denominator of eq. (1) is exp(1/tau), a constant that stands "
    "inside log(1 + ...): no additive constant, and the loss is another. A change of variables "
    "cannot drop it; below eq. (5) the paper keeps the same constant, C = exp(-1/tau). That the "
    "loss sees the latent law alone is true of both forms",
)
CLAIMS = (SAME, CONTROL, EXPONENT)


@dataclass(frozen=True)
class Settings:
    """The two laws.

    Args:
        seeds: a draw of both laws, of the views and of q each.
        n: samples.
        noise: of the views, in the first law and in the second.
        n_noise: coordinates that the views disturb.
        tau: 0.5 as in SimCLR; the paper gives none.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n: int = 1000
    noise: tuple[float, float] = (0.2, 1.0)
    n_noise: int = 4
    tau: float = 0.5


QUICK = Settings(seeds=(0, 1), n=200)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), n=4000)


def law(name: str, n: int, n_noise: int, generator: torch.Generator) -> Tensor:
    """Clean samples: four tight clusters on a line, or one broad bump; noise coordinates zero."""
    x = torch.zeros(n, 1 + n_noise, dtype=torch.float64)
    bump = torch.randn(n, dtype=torch.float64, generator=generator)
    if name == "clusters":
        centre = torch.randint(4, (n,), generator=generator) * 2.0 - 3.0
        x[:, 0] = centre + 0.05 * bump
    else:
        x[:, 0] = 2 * bump
    return x


def view(x: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """T(x): noise in all coordinates but the first."""
    moved = x.clone()
    moved[:, 1:] += noise * torch.randn(x[:, 1:].shape, dtype=x.dtype, generator=generator)
    return moved


def latents(seen: Tensor, clean: Tensor, leak: float) -> Tensor:
    """The map: the clean law's distribution function around the circle, plus a leak of noise."""
    rank = torch.searchsorted(clean[:, 0].sort().values, seen[:, 0].contiguous())
    angle = 2 * math.pi * rank / len(clean) + leak * seen[:, 1]
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def losses(z1: Tensor, z2: Tensor, q: Tensor, tau: float) -> dict[str, float]:
    """NT-Xent, VICReg, and BYOL with the predictor q."""
    return {
        "nt_xent": float(cs.InfoNCE(cs.Cosine(tau=tau), cs.AllButSelf())(z1, z2)),
        "vicreg": float(cs.VICReg()(z1, z2)),
        "byol": float(cs.BYOL(normalise=False)(z1 @ q, z2)),
    }


def reformulated(z: Tensor, tau: float, shift: float) -> float:
    """E log(1 + 2 E[1 exp((sim - shift)/tau)]), oneself left out as a sample."""
    k = torch.exp((z @ z.T - shift) / tau).fill_diagonal_(0.0)
    return float(torch.log1p(2 * k.mean(dim=1)).mean())


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Both laws under both maps."""
    numbers: dict[str, Any] = {"losses": [], "printed": [], "corrected": [], "example": {}}
    for seed in settings.seeds:
        generator = torch.Generator().manual_seed(seed)
        q = torch.randn(2, 2, dtype=torch.float64, generator=generator)
        row: dict[str, Any] = {}
        for leak in (0.0, 1.0):
            for name, noise in zip(("clusters", "bump"), settings.noise, strict=True):
                clean = law(name, settings.n, settings.n_noise, generator)
                z1, z2 = (latents(view(clean, noise, generator), clean, leak) for _ in range(2))
                row[f"{name}, leak {leak:g}"] = losses(z1, z2, q, settings.tau)
                if leak == 0.0 and name == "clusters":
                    direct = equation_1(z1, z2, settings.tau)
                    for form, shift in (("printed", 0.0), ("corrected", 1.0)):
                        value = reformulated(z1, settings.tau, shift)
                        numbers[form].append(abs(value - direct))
                if leak == 0.0 and seed == settings.seeds[0]:
                    numbers["example"][name] = [clean[:100, 0].tolist(), z1[:100].tolist()]
        numbers["losses"].append(row)
    return numbers


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Agreement under the invariant map, disagreement under the other, and the exponent."""
    gaps = {
        leak: {
            name: [
                abs(row[f"clusters, leak {leak}"][name] - row[f"bump, leak {leak}"][name])
                for row in result["losses"]
            ]
            for name in ("nt_xent", "vicreg", "byol")
        }
        for leak in (0, 1)
    }
    return [
        SAME.judge(**gaps[0]),
        CONTROL.judge(**gaps[1]),
        EXPONENT.judge(
            printed={"error": result["printed"]}, corrected={"error": result["corrected"]}
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Two data laws, the one latent law, and the losses under both maps."""
    canvas, axes = style.canvas(1, 3, width=3.0)
    data, circle, bars = axes[0]
    for i, (name, (x, z)) in enumerate(result["example"].items()):
        data.hist(x, bins=40, color=style.COLOURS[i], alpha=0.75, label=name)
        radius = 1.0 - 0.25 * i
        circle.scatter(
            [radius * a for a, _ in z], [radius * b for _, b in z], s=6, color=style.COLOURS[i]
        )
    data.legend()
    style.label(data, "x_1", "samples", "two data laws")
    circle.set_aspect("equal")
    style.label(circle, "z_1", "z_2", "one latent law (drawn as two rings)")
    names = ("nt_xent", "vicreg", "byol")
    for leak, offset in ((0, -0.2), (1, 0.2)):
        gaps = [
            max(
                abs(row[f"clusters, leak {leak}"][name] - row[f"bump, leak {leak}"][name])
                for row in result["losses"]
            )
            for name in names
        ]
        text = "not invariant" if leak else "invariant"
        bars.bar(
            [i + offset for i in range(3)],
            [max(gap, 1e-17) for gap in gaps],
            width=0.36,
            color=style.COLOURS[leak],
            label=text,
        )
    bars.axhline(1e-10, color=style.GREY, linestyle="--", linewidth=0.8)
    bars.set_yscale("log")
    bars.set_ylim(1e-17, 1e7)
    bars.set_xticks(range(3), names)
    bars.legend(loc="upper left")
    style.label(bars, "loss", "difference between the laws", "invariant: the loss is blind")
    return canvas
