"""Fig. 3: the loss of evenly spaced atoms on the circle.

Paper: calder2025, Sec. 3, Remark 3.1 and Fig. 3. n points sit on n_atoms evenly spaced places of
the circle (the paper's K; K is a Gram matrix here). The loss falls with n_atoms and levels off;
over the least squared distance of two atoms it levels off at a threshold; the threshold is linear
in tau.

Closed form. With eta(t) = exp(-t/tau) and psi(t) = log(1+t) every atom sees the same ratio, so
loss = log(1 + (1/n_atoms) sum_k exp((cos(2 pi k / n_atoms) - 1) / tau)), which by Poisson
summation is log(1 + I0e(1/tau) + 2 sum_m Ime(m n_atoms, 1/tau)): it falls to log(1 + I0e(1/tau)).

Deviations: the paper does not say what its threshold is. Ours: the largest least squared distance
d2 = 4 sin(pi/n_atoms)^2 at which the loss exceeds its limit by the share eps, n_atoms taken
between integers by linear interpolation of the logarithm of the excess. Three eps are judged, for
tau <= 0.2.

Trap: "x != y" means two samples in eq. (1). Prop. 2.1 writes it of two latent values x, y, with
laws that may have atoms (its mu is continuous, but f#mu need not be, and its minimum is over all
laws). Read as it is written there, it leaves out all samples of one's own atom: a point mass has
loss 0 and is the minimum over all laws, where eq. (1) has log(1 + 2 (n-1)/n), log 3 in the limit;
and Fig. 3 turns upside down, the loss rises with every atom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Remark, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

CLOSED = Stated(
    "V4.closed",
    "the loss of even atoms has the closed form log(1 + mean_k exp((cos(2 pi k/n_atoms)-1)/tau))",
    "Remark 3.1, Fig. 3",
    "drawn, not stated",
    "error < 1e-10",
)
LIMIT = Stated(
    "V4.limit",
    "with many atoms the loss is that of the uniform law, log(1 + I0e(1/tau))",
    "Remark 3.1: a uniform distribution minimises",
    "plateau",
    "error < 1e-10",
)
FALLS = Stated(
    "V4.falls",
    "the loss falls with the number of atoms and then plateaus, and a smaller tau has a smaller "
    "loss",
    "Fig. 3, first and second plot",
    "decreasing",
    "smallest_fall_with_atoms > -1e-12 and smallest_rise_with_tau > 0",
)
LINEAR = Stated(
    "V4.threshold",
    "the threshold of the least squared distance is linear in tau, for tau <= 0.2",
    "Fig. 3, third plot",
    "linear",
    "r_squared >= 0.98",
    kind="empirical",
)
MASK = Remark(
    "V4.mask",
    "eq. (1), Prop. 2.1: the indicator of x != y, for atoms",
    "leaving out equal latent values, the loss of Fig. 3 falls with the number of atoms.",
    "change < 0",
    "leaving out the sample itself, as eq. (1) means it, it does. Read by latent values the order "
    "of Fig. 3 is reversed, and the minimum of Prop. 2.1 over all laws would be 0, at a point "
    "mass, where eq. (1) has log 3 in the limit of many samples (point_mass).",
    "change < 0",
)
CLAIMS = (CLOSED, LIMIT, FALLS, LINEAR, MASK)


@dataclass(frozen=True)
class Settings:
    """What is drawn.

    Args:
        seeds: a rotation of the circle each; the loss must not depend on it.
        taus: of the curves; the paper's legend is not in the text, so a range around SimCLR's 0.5.
        most: the largest n_atoms; the paper's plateau is reached well before.
        per_atom: samples on each atom, for the objective itself; any number gives the same loss.
        thresholds: tau of the third plot, up to the 0.2 of the rule and beyond it.
        eps: shares of the limit that count as level; the paper gives none.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    taus: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0)
    most: int = 64
    per_atom: int = 2
    thresholds: tuple[float, ...] = tuple(round(0.01 * i, 2) for i in range(2, 51))
    eps: tuple[float, ...] = (1e-2, 1e-3, 1e-4)


QUICK = Settings(seeds=(0,), most=32)
LAPTOP = Settings()
PAPER = Settings(most=200, thresholds=tuple(round(0.005 * i, 3) for i in range(2, 201)))


def closed(n_atoms: int, tau: float) -> float:
    """The loss of evenly spaced atoms, any number of samples on each."""
    angle = torch.arange(n_atoms, dtype=torch.float64) * (2 * math.pi / n_atoms)
    return math.log1p(float(torch.exp((angle.cos() - 1) / tau).mean()))


def limit(tau: float) -> float:
    """The loss of the uniform law on the circle: log(1 + I0e(1/tau))."""
    return math.log1p(float(torch.special.i0e(torch.tensor(1 / tau, dtype=torch.float64))))


def least_squared(n_atoms: int) -> float:
    """The least squared distance between two of the atoms."""
    return 4 * math.sin(math.pi / n_atoms) ** 2


def threshold(tau: float, eps: float) -> float:
    """The least squared distance at which the loss exceeds its limit by the share eps."""
    level, bound = limit(tau), math.log(eps)
    before = math.log(closed(2, tau) / level - 1)
    if before < bound:
        return math.nan  # two atoms are level already
    n_atoms = 2
    while True:
        after = math.log(max(closed(n_atoms + 1, tau) / level - 1, 1e-300))
        if after <= bound:
            part = (before - bound) / (before - after)
            near, far = least_squared(n_atoms), least_squared(n_atoms + 1)
            return near + part * (far - near)
        n_atoms, before = n_atoms + 1, after


def r_squared(x: list[float], y: list[float]) -> float:
    """Share of the variance of y that a straight line in x explains."""
    pair = torch.tensor([x, y], dtype=torch.float64)
    return float(torch.corrcoef(pair)[0, 1] ** 2)


def atoms(n_atoms: int, per_atom: int, turn: float) -> Tensor:
    """(n_atoms * per_atom, 2) points on evenly spaced places of the circle."""
    angle = torch.arange(n_atoms, dtype=torch.float64).repeat(per_atom) * (2 * math.pi / n_atoms)
    return torch.stack([(angle + turn).cos(), (angle + turn).sin()], dim=1)


def masked(n_atoms: int, per_atom: int, tau: float, by: str, views: int = 1) -> float:
    """The loss with oneself left out of the sum: as a latent value, or as a sample.

    With the candidates of one view, as in Fig. 3 and above, or of two, as in eq. (1).
    """
    z = atoms(n_atoms, per_atom, 0.0)
    k = cs.Gaussian(tau=tau).log(z, z).exp()
    place = torch.arange(n_atoms).repeat(per_atom) if by == "value" else torch.arange(len(z))
    same = place[:, None] == place
    return float(torch.log1p(views * k.masked_fill(same, 0.0).mean(dim=1)).mean())


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """The three plots, and the objective beside its closed form."""
    counts = list(range(1, settings.most + 1))
    error = 0.0
    for seed in settings.seeds:
        generator = torch.Generator().manual_seed(seed)
        turn = 2 * math.pi * float(torch.rand((), generator=generator))
        for tau in settings.taus:
            objective = cs.Generalised("log1p", cs.Gaussian(tau=tau))
            for n_atoms in counts:
                z = atoms(n_atoms, settings.per_atom, turn)
                error = max(error, abs(float(objective(z, z)) - closed(n_atoms, tau)))
    return {
        "taus": list(settings.taus),
        "counts": counts,
        "loss": [[closed(n_atoms, tau) for n_atoms in counts] for tau in settings.taus],
        "limit": [limit(tau) for tau in settings.taus],
        "closed_error": error,
        "eps": list(settings.eps),
        "thresholds": list(settings.thresholds),
        "threshold": [[threshold(tau, eps) for tau in settings.thresholds] for eps in settings.eps],
        "masked": {
            by: [masked(n, math.ceil(240 / n), settings.taus[1], by) for n in counts]
            for by in ("value", "sample")
        },
        "point_mass": {
            by: masked(1, 240, settings.taus[1], by, views=2) for by in ("value", "sample")
        },
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """The five judgements."""
    loss = result["loss"]
    rises = [b - a for row in loss for a, b in pairwise(row)]
    with_tau = [b - a for one, two in pairwise(loss) for a, b in zip(one[1:], two[1:], strict=True)]
    last = [abs(row[-1] - end) for row, end in zip(loss, result["limit"], strict=True)]
    small = [i for i, tau in enumerate(result["thresholds"]) if tau <= 0.2]
    taus = [result["thresholds"][i] for i in small]
    fits = [r_squared(taus, [row[i] for i in small]) for row in result["threshold"]]
    change = {
        by: {"change": row[-1] - row[0], "point_mass": result["point_mass"][by]}
        for by, row in result["masked"].items()
    }
    return [
        CLOSED.judge(error=result["closed_error"]),
        LIMIT.judge(error=max(last), n_atoms=result["counts"][-1]),
        FALLS.judge(smallest_fall_with_atoms=-max(rises), smallest_rise_with_tau=min(with_tau)),
        LINEAR.judge(r_squared=fits, eps=result["eps"]),
        MASK.judge(expected=change["value"], ours=change["sample"]),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Fig. 3, and what the wrong mask makes of it."""
    canvas, ((a, b), (c, d)) = style.canvas(2, 2)
    counts = result["counts"]
    for tau, row, end in zip(result["taus"], result["loss"], result["limit"], strict=True):
        (line,) = a.plot(counts, row, marker=".", label=f"tau {tau:g}")
        a.axhline(end, color=line.get_color(), linewidth=0.7, linestyle=":")
        b.plot([least_squared(m) for m in counts[1:]], row[1:], marker=".", label=f"tau {tau:g}")
    a.set_xlim(0, 32)
    a.legend()
    style.label(a, "n_atoms", "loss", "atoms: it falls and levels off")
    style.label(b, "least squared distance of atoms", "loss", "distance: level below a threshold")
    for eps, row in zip(result["eps"], result["threshold"], strict=True):
        c.plot(result["thresholds"], row, label=f"eps {eps:g}")
    c.axvspan(0, 0.2, color=style.GREY, alpha=0.12, linewidth=0)
    c.text(0.012, c.get_ylim()[1] * 0.62, "judged", color=style.GREY, fontsize=8)
    c.set_xlim(left=0)
    c.set_ylim(bottom=0)
    c.legend()
    style.label(c, "tau", "threshold", "threshold: linear for small tau")
    for by, row in result["masked"].items():
        d.plot(counts, row, marker=".", label=f"left out by {by}")
    d.set_xlim(0, 32)
    d.legend()
    style.label(d, "n_atoms", "loss", f"mask by value reverses it (tau {result['taus'][1]:g})")
    return canvas
