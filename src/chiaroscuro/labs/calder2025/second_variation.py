"""Lemma A.2: is an even arrangement of atoms a minimiser? The second variation.

Paper: calder2025, Lemma A.2 with its proof, eqs. (26)-(29).

Erratum: in eq. (28) psi'(G) of psi(t) = log(1 + t/2) is printed as 1/(1 + G^2/2); it is 1/(2 +
G), and psi'' is -1/(2 + G)^2. The lemma survives, and asks for less. By the proof's own step
(Jensen's) eq. (28) is at least, with the right derivatives,

    1/tau^2 int psi'(G(x)) int k(x,y) [ (1+G)/(2+G) <x-y, h(x)-h(y)>^2 - tau |h(x)-h(y)|^2 ]

The factor is 1 - psi'(G) = (1+G)/(2+G), more than 1/2 for every G > 0, where the proof has
(G^2/2) / (1 + G^2/2), at least 1/(3 K^2). So (27) with sigma = 2 tau is enough, for any K, in place
of sigma > 3 K^2 tau.

Remarks (ours). (1) Eq. (28) is the second variation of L in flat space. A map that stays on the
sphere moves along z cos t + h sin t, which adds -sum_i <dL/dz_i, z_i> |h_i|^2. By eq. (7) every
<dL/dz_i, z_i> is a sum of eta' (1 - z_i . z_j) times positive weights, and eta' < 0: none is
positive, the term adds to the second variation, and the lemma's conclusion is the stronger for it.
(2) On the circle, with one sample on each atom the Hessian in the angles is positive semidefinite:
even atoms are minimisers. With two or more samples on an atom they are saddles: pulling the samples
of one atom apart lowers the loss. The lemma moves atoms as a whole (eq. 29), and in its own setting
it is right (V3.lemma).

Deviations: eta(t) = exp(-t/tau) throughout, as in the statement (the proof has r(t) = exp(-t/(2
tau)) but writes exp(-|x-y|^2/(2 tau)), which is the same).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Remark, Stated, at_once, style
from chiaroscuro.labs.calder2025.generalised import unit_views

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

FORMULA = Erratum(
    "V3.second",
    "Lemma A.2, eq. (28)",
    "the second variation is eq. (28), with psi'(G) = 1/(1 + G^2/2).",
    "error < 1e-10",
    "the second variation is that form with psi'(G) = 1/(2 + G), psi''(G) = -1/(2 + G)^2, and "
    "positive for the lemma's h if (27) holds with sigma = 2 tau.",
    "error < 1e-10 and over_bound > -1e-10 and smallest_ratio > 0 and directions >= 100",
    quote="Let Psi(t) = log(1 + t/2) and r(t) = e^(-t/(2 tau)). With these choice of functions and "
    "by the change of variables, = -1/tau^2 int (1/(1 + G(x)^2/2))^2 (...)^2 + 1/tau^2 int 1/(1 + "
    "G(x)^2/2) ...",
    why="Psi is given in the line before, and its derivative is 1/(2 + t); the factor is used "
    "in every bound that follows. The lemma survives with a weaker condition: the bracket of the "
    "proof is (1 + G)/(2 + G) >= 1/2 with the right derivatives, so that sigma = 2 tau is enough "
    "in (27), where the lemma asks for sigma > 3 K^2 tau",
)
SPHERE = Remark(
    "V3.sphere",
    "Lemma A.2: h with f + h on the sphere",
    "along the sphere the second derivative of the loss is the second variation of eq. (28).",
    "error < 1e-10",
    "it has the further term -sum_i <dL/dz_i, z_i> |h_i|^2, and no <dL/dz_i, z_i> is positive: on "
    "the sphere the lemma's second variation is larger still.",
    "error < 1e-10 and largest_pull < 0",
)
SADDLE = Remark(
    "V3.saddle",
    "Lemma A.2, eq. (26) with m >= 2 points per atom",
    "even atoms with several points each are minima, as those with one.",
    "smallest > -1e-10",
    "pulling the points of one atom apart lowers the loss: the lemma's directions move atoms "
    "as a whole, and there it is right (V3.lemma).",
    "smallest > -1e-10",
)
LEMMA = Stated(
    "V3.lemma",
    "in the lemma's own setting, several points per atom that move together, sigma > 3 K^2 tau and "
    "(27) for every pair, the second variation is positive",
    "Lemma A.2",
    "positive",
    "smallest_ratio > 0 and directions >= 100",
)
MINIMUM = Stated(
    "V3.minimum",
    "one point per atom: along the circle only the common rotation costs nothing",
    "Lemma A.2, Remark 3.1",
    "local minimiser",
    "smallest > -1e-10 and second > 1e-12",
)
CLAIMS = (FORMULA, SPHERE, SADDLE, LEMMA, MINIMUM)


@dataclass(frozen=True)
class Settings:
    """Which Hessians are computed.

    Args:
        seeds: random points and directions each.
        n: random points.
        taus: of the Hessians.
        n_atoms: on the circle.
        per_atom: points on each, for the saddles and the lemma.
        taus_inside, n_atoms_inside: where sigma > 3 K^2 tau leaves directions that satisfy (27);
            also for sigma = 2 tau.
        directions: tried for each of these.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n: int = 12
    taus: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0)
    n_atoms: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    per_atom: tuple[int, ...] = (2, 3)
    taus_inside: tuple[float, ...] = (0.01, 0.03, 0.06)
    n_atoms_inside: tuple[int, ...] = (2, 3, 4)
    directions: int = 800


QUICK = Settings(
    seeds=(0, 1), n=6, taus=(0.2, 0.5), n_atoms=(2, 3, 5), taus_inside=(0.03,),
    n_atoms_inside=(3,), directions=300,
)  # fmt: skip
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(20)), n=30, n_atoms=tuple(range(2, 17)), per_atom=(2, 3, 4))


def psi(t: Tensor) -> Tensor:
    """log(1 + t/2), the choice of the proof."""
    return torch.log1p(t / 2)


def loss(z: Tensor, tau: float) -> Tensor:
    """The generalised loss of an invariant map."""
    return cs.Generalised(psi, cs.Gaussian(tau=tau))(z, z)


def form(z: Tensor, h: Tensor, tau: float, printed: bool) -> float:
    """Eq. (28): the second variation of the loss at z in the direction h."""
    away, apart = z[:, None] - z, h[:, None] - h
    k = torch.exp(-(away**2).sum(dim=2) / (2 * tau))
    g = k.mean(dim=1)
    first = 1 / (1 + g**2 / 2) if printed else 1 / (2 + g)  # psi'
    inner = (away * apart).sum(dim=2)
    bend = -(first**2) * ((k * inner).mean(dim=1) / tau) ** 2  # psi'' = -psi'^2 in both
    stretch = first * (k * (inner / tau) ** 2).mean(dim=1)
    slack = first * (k * (apart**2).sum(dim=2) / tau).mean(dim=1)
    return float((bend + stretch - slack).mean())


def bound(z: Tensor, h: Tensor, tau: float) -> float:
    """The proof's lower bound of eq. (28), with the right derivatives of psi."""
    away, apart = z[:, None] - z, h[:, None] - h
    k = torch.exp(-(away**2).sum(dim=2) / (2 * tau))
    g = k.mean(dim=1, keepdim=True)
    inner, size = (away * apart).sum(dim=2), (apart**2).sum(dim=2)
    bracket = (1 + g) / (2 + g) * inner**2 - tau * size
    return float((k * bracket / (2 + g)).mean() / tau**2)


def along(z: Tensor, h: Tensor, tau: float, sphere: bool) -> float:
    """The second derivative of the loss along z + t h, or z cos t|h| + h/|h| sin t|h|."""
    length = h.norm(dim=1, keepdim=True)

    def at(t: Tensor) -> Tensor:
        if sphere:
            return loss(z * (t * length).cos() + h / length * (t * length).sin(), tau)
        return loss(z + t * h, tau)

    return float(torch.autograd.functional.hessian(at, torch.zeros((), dtype=z.dtype)))


def pull(z: Tensor, tau: float) -> Tensor:
    """<dL/dz_i, z_i> of all samples i."""
    z = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(z, tau), z)
    return (slope * z.detach()).sum(dim=1)


def curvature(z: Tensor, h: Tensor, tau: float) -> float:
    """-sum_i <dL/dz_i, z_i> |h_i|^2: what the bending of the sphere adds."""
    return float(-(pull(z, tau) * (h**2).sum(dim=1)).sum())


def even(n_atoms: int, per_atom: int) -> Tensor:
    """Even atoms on the circle, with several samples on each."""
    angle = torch.arange(n_atoms, dtype=torch.float64).repeat(per_atom) * (2 * math.pi / n_atoms)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def spectrum(n_atoms: int, per_atom: int, tau: float) -> list[float]:
    """Eigenvalues of n times the Hessian in the angles, at even atoms."""
    angle = torch.arange(n_atoms, dtype=torch.float64).repeat(per_atom) * (2 * math.pi / n_atoms)

    def at(turn: Tensor) -> Tensor:
        return loss(torch.stack([turn.cos(), turn.sin()], dim=1), tau)

    hessian = torch.autograd.functional.hessian(at, angle)
    return torch.linalg.eigvalsh(hessian * len(angle)).tolist()


def inside(
    settings: Settings, n_atoms: int, per_atom: int, tau: float, sigma: float
) -> list[float]:
    """Second variations in directions that satisfy (27), in units of the last term of eq. (28).

    Every atom turns by an angle of its own, the same for all its points, so that f + h is on the
    circle; of the directions that are tried those are kept for which (27) holds.
    """
    draw = torch.Generator().manual_seed(settings.seeds[0])
    at = torch.arange(n_atoms, dtype=torch.float64) * (2 * math.pi / n_atoms)
    on = lambda angle: torch.stack([angle.cos(), angle.sin()], dim=-1)
    atoms = on(at)
    ratios = []
    for _ in range(settings.directions):
        turn = math.pi * (2 * torch.rand(n_atoms, dtype=torch.float64, generator=draw) - 1)
        h = on(at + turn) - atoms
        away, apart = atoms[:, None] - atoms, h[:, None] - h
        inner, size = (away * apart).sum(dim=2), (apart**2).sum(dim=2)
        off = ~torch.eye(n_atoms, dtype=torch.bool)
        if bool((inner[off] ** 2 > sigma * size[off]).all()):
            z, moves = atoms.repeat(per_atom, 1), h.repeat(per_atom, 1)
            k = torch.exp(-(away**2).sum(dim=2) / (2 * tau))
            ratios.append(form(z, moves, tau, printed=False) / float((k * size).mean()))
    return ratios


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """The form against autograd, and Hessians at even atoms."""
    errors = {"printed": 0.0, "corrected": 0.0, "flat": 0.0, "sphere": 0.0}
    over_bound = []
    pulls = [
        float(pull(even(n, m), tau).max())
        for tau in settings.taus
        for n in settings.n_atoms
        for m in (1, *settings.per_atom)
    ]
    for seed in settings.seeds:
        z, h = unit_views(settings.n, 3, 1.0, 1.0, seed)
        h = h - (h * z).sum(dim=1, keepdim=True) * z  # tangential
        for tau in settings.taus:
            pulls.append(float(pull(z, tau).max()))
            flat, bent = (along(z, h, tau, sphere) for sphere in (False, True))
            right = form(z, h, tau, printed=False)
            over_bound.append(right - bound(z, h, tau))
            gaps = {
                "printed": form(z, h, tau, printed=True) - flat,
                "corrected": right - flat,
                "flat": right - bent,
                "sphere": right + curvature(z, h, tau) - bent,
            }
            errors = {name: max(errors[name], abs(gap)) for name, gap in gaps.items()}
    spectra = [
        {"tau": tau, "n_atoms": n, "per_atom": m, "values": spectrum(n, m, tau)}
        for tau in settings.taus
        for n in settings.n_atoms
        for m in (1, *settings.per_atom)
    ]
    ratios = {
        name: [
            ratio
            for tau in settings.taus_inside
            for n in settings.n_atoms_inside
            for m in settings.per_atom
            for ratio in inside(settings, n, m, tau, factor(n) * tau)
        ]
        for name, factor in (("inside", lambda n: 3 * n**2), ("two_tau", lambda n: 2))
    }
    least = {
        name: {"smallest": min(found, default=math.nan), "directions": len(found)}
        for name, found in ratios.items()
    }
    return {
        "errors": errors,
        "largest_pull": max(pulls),
        "over_bound": min(over_bound),
        "spectra": spectra,
        **least,
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """The formula, its meaning on the sphere, and minimisers against saddles."""
    errors = result["errors"]
    one = [row["values"] for row in result["spectra"] if row["per_atom"] == 1]
    many = [row["values"] for row in result["spectra"] if row["per_atom"] > 1]
    smallest = [values[0] for values in one]
    return [
        FORMULA.judge(
            printed={"error": errors["printed"]},
            corrected={
                "error": errors["corrected"],
                "over_bound": result["over_bound"],
                "smallest_ratio": result["two_tau"]["smallest"],
                "directions": result["two_tau"]["directions"],
            },
        ),
        SPHERE.judge(
            expected={"error": errors["flat"]},
            ours={"error": errors["sphere"], "largest_pull": result["largest_pull"]},
        ),
        SADDLE.judge(
            expected={"smallest": [values[0] for values in many]}, ours={"smallest": smallest}
        ),
        LEMMA.judge(
            smallest_ratio=result["inside"]["smallest"], directions=result["inside"]["directions"]
        ),
        MINIMUM.judge(smallest=smallest, second=[values[1] for values in one]),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Eigenvalues of the Hessian along the circle, by temperature and points per atom."""
    taus = sorted({row["tau"] for row in result["spectra"]})
    canvas, axes = style.canvas(1, len(taus), width=2.6)
    for axis, tau in zip(axes[0], taus, strict=True):
        rows = [row for row in result["spectra"] if row["tau"] == tau]
        most = max(row["per_atom"] for row in rows)
        for row in rows:
            m = row["per_atom"]
            axis.scatter(
                [row["n_atoms"] + 0.22 * (m - 1)] * len(row["values"]),
                row["values"],
                s=14,
                color=style.COLOURS[m - 1],
                label=f"{m} per atom" if row["n_atoms"] == rows[0]["n_atoms"] else None,
                alpha=0.8,
            )
        axis.axhline(0, color=style.GREY, linewidth=0.8)
        axis.set_xlim(1.5, max(row["n_atoms"] for row in rows) + 0.22 * most + 0.3)
        style.label(axis, "n_atoms", "eigenvalue of n Hessian", f"tau {tau:g}")
    axes[0, 0].legend()
    return canvas
