"""Prop. 3.1, Thm 3.2, Prop. A.1: where the gradient of the generalised loss vanishes.

Paper: calder2025, Prop. 3.1 (eqs. 6, 7), Thm 3.2 (eq. 8), Remark 3.1, Prop. A.1.

Derivation of eq. (6), once more. L = E_{T,T'} E_x psi(G_{T,T'}(x)). f(T(x)) enters as anchor under
(T,T') and as candidate under (T',T): the candidate's weight is psi'(G_{T',T}(y)) /
eta(T(y),T'(y)). The paper prints psi'(G_{T,T'}(y)) there; for an invariant map the two agree,
hence eq. (7) is right.

Errata, typos and remarks of ours (each claim says which). Condition (8) of Thm 3.2 asks that int
h(x,y) be the same at all x, for all antisymmetric h with values on the sphere. There is no such h,
as h(x,x) = 0 is not on the sphere. With values in R^d the mean over x is zero, so the integral
would have to be zero at every x, which two or more even atoms, Remark 3.1's example of the theorem,
do not give; a single atom does. What stationarity on the sphere needs is that the integral be
parallel to x at each x. At even atoms it is c x with one and the same c (they are an orbit of a
symmetry group): what the remark says of them is true (V3.even), and does not follow from the
theorem as printed. "Evenly distributed" must mean such an orbit: Fibonacci's nearly even points are
not stationary.

Numerics: the gradient of L as a function on samples is n dL/dz_i. Deviations: the paper's a and r
of Prop. A.1 are both eta.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Remark, Stated, at_once, style
from chiaroscuro.labs.calder2025.generalised import unit_views

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

INVARIANT = Stated(
    "V3.gradient",
    "for an invariant map the gradient of the loss is eq. (7)",
    "Prop. 3.1, eq. (7)",
    "identity",
    "error < 1e-10",
)
EULER = Erratum(
    "V3.euler",
    "Prop. 3.1, eq. (6)",
    "the second weight of eq. (6) is psi'(G_{T,T'}(y)) / eta(T(y),T'(y)).",
    "error < 1e-10",
    "the second weight of eq. (6) is psi'(G_{T',T}(y)) / eta(T(y),T'(y)).",
    "error < 1e-10",
    quote="Psi'(G_{T,T'}(f,y)) / eta_f(T(y),T'(y))",
    why="the next line of the same equation has the pair in the right order, (T',T)",
    kind="typo",
)
EVEN = Stated(
    "V3.even",
    "evenly spaced atoms on the sphere are stationary, random points are not",
    "Thm 3.2, Remark 3.1",
    "stationary",
    "even < 1e-10 and random > 1e-2",
)
CONDITION = Erratum(
    "V3.condition",
    "Thm 3.2, eq. (8); Remark 3.1",
    "at even atoms int h(x,y) is the same for all x, with h = eta'(|x-y|^2/2) (x-y).",
    "spread < 1e-10",
    "at even atoms int h(x,y) is c x with one c: parallel to x, and another vector at each atom.",
    "tangential < 1e-10 and multiplier_spread < 1e-10",
    quote="satisfying int h(x_1,y) df#mu(y) = int h(x_2,y) df#mu(y) for all x_1, x_2 ~ f#mu and "
    "for all anti-symmetric functions h: S^{d-1} x S^{d-1} -> S^{d-1} such that h(x,y) = -h(y,x) "
    "... Examples of the embedded distribution f#mu in Theorem 3.2 include a discrete measure ... "
    "with points x_i evenly distributed on S^{d-1}",
    why="as printed, with values on the sphere, there is no such h: h(x,x) = 0 is not on it, so "
    "that eq. (8) would ask for nothing, and the h of the proof, eq. (25), has values in R^d. With "
    "values in R^d eq. (8) forces every integral to vanish, as that of an anti-symmetric h over "
    "both variables is 0; at even atoms the one of the proof is c x, with one and the same c, not "
    "0: the vector differs from atom to atom, and the first example of Remark 3.1 does not satisfy "
    "eq. (8) (the second, a single point, does). The remark's conclusion holds: even atoms are "
    "stationary (V3.even)",
)
FIBONACCI = Remark(
    "V3.fibonacci",
    "Remark 3.1: points evenly distributed on the sphere",
    "nearly even points (Fibonacci's) are stationary too.",
    "tangential < 1e-10",
    "orbits of a symmetry group (tetrahedron, octahedron, cube, icosahedron) are; nearly even "
    "points are not.",
    "tangential < 1e-10",
)
CONSTANT = Stated(
    "V3.constant",
    "a constant map is stationary",
    "Prop. A.1, 1",
    "stationary",
    "gradient < 1e-12",
)
SCALED = Stated(
    "V3.scaled",
    "invariant maps scaled by s = 1, 2, 4, ... are stationary in the limit",
    "Prop. A.1, 2",
    "gradient tends to 0",
    "at_1 > 1e-3 and last < 1e-10",
)
CLAIMS = (INVARIANT, EULER, EVEN, CONDITION, FIBONACCI, CONSTANT, SCALED)

PSI: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "log(1+t)": (torch.log1p, lambda t: 1 / (1 + t)),
    "t": (lambda t: t, torch.ones_like),
    "sqrt(t)": (torch.sqrt, lambda t: 0.5 / t.sqrt()),
}
"""Outer functions and their derivatives."""


@dataclass(frozen=True)
class Settings:
    """Which points are looked at.

    Args:
        seeds: a random batch each.
        n: pairs of a random batch.
        tau: 0.5 as in SimCLR; the paper gives none.
        n_atoms: on the circle.
        n_fibonacci: on the sphere; the tangential gradient falls with n but never vanishes.
        doublings: of the scale s.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n: int = 40
    tau: float = 0.5
    n_atoms: tuple[int, ...] = (2, 3, 4, 5, 8, 16, 64)
    n_fibonacci: tuple[int, ...] = (12, 20, 50, 100)
    doublings: int = 7


QUICK = Settings(seeds=(0, 1), n=20)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(20)), n=200, n_fibonacci=(12, 20, 50, 100, 1000))


def eta(t: Tensor, tau: float) -> Tensor:
    """exp(-t/tau); its derivative is -eta/tau."""
    return torch.exp(-t / tau)


def equation_6(z1: Tensor, z2: Tensor, slope: Callable, tau: float, printed: bool) -> Tensor:
    """The integrand of eq. (6) at T, T' of z1, z2: the gradient at f(T(x))."""
    k = eta(torch.cdist(z1, z2, compute_mode="donot_use_mm_for_euclid_dist") ** 2 / 2, tau)
    own = k.diagonal()
    there = slope(k.mean(dim=1) / own)  # psi'(G_{T,T'})
    back = slope(k.mean(dim=0) / own)  # psi'(G_{T',T})
    second = there if printed else back
    weights = ((there / own)[:, None] + (second / own)[None, :]) * (-k / tau)
    repel = (weights[:, :, None] * (z1[:, None] - z2[None, :])).mean(dim=1)
    attract = (there * k.mean(dim=1) + back * k.mean(dim=0)) * (-own / tau) / own**2
    return repel - attract[:, None] * (z1 - z2)


def equation_7(z: Tensor, slope: Callable, tau: float) -> Tensor:
    """The gradient for an invariant map."""
    k = eta(torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist") ** 2 / 2, tau)
    weight = slope(k.mean(dim=1))
    weights = (weight[:, None] + weight) * (-k / tau)
    return (weights[:, :, None] * (z[:, None] - z)).mean(dim=1)


def gradient(z: Tensor, psi: Callable | str, tau: float) -> Tensor:
    """n dL/dz_i of an invariant map, by autograd through the objective."""
    z = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(cs.Generalised(psi, cs.Gaussian(tau=tau))(z, z), z)
    return len(z) * slope


def largest(z: Tensor, tau: float) -> float:
    """The length of the longest gradient."""
    return float(gradient(z, "log1p", tau).norm(dim=1).max())


def tangential(z: Tensor, tau: float) -> float:
    """The largest part of a gradient that is not parallel to its point."""
    g = gradient(z, "log1p", tau)
    return float((g - (g * z).sum(dim=1, keepdim=True) * z).norm(dim=1).max())


def solid(name: str) -> Tensor:
    """The corners of a regular solid, on the unit sphere."""
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)), dtype=torch.float64)
    if name == "octahedron":
        z = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    elif name == "cube":
        z = signs
    elif name == "tetrahedron":
        z = signs[signs.prod(dim=1) > 0]
    else:  # icosahedron: (0, +-1, +-golden) and its cyclic shifts
        golden = (1 + math.sqrt(5)) / 2
        corners = [[0.0, a, b * golden] for a in (-1, 1) for b in (-1, 1)]
        face = torch.tensor(corners, dtype=torch.float64)
        z = torch.cat([face.roll(shift, dims=1) for shift in range(3)])
    return z / z.norm(dim=1, keepdim=True)


def fibonacci(n: int) -> Tensor:
    """n nearly even points on the sphere, along a spiral of the golden angle."""
    i = torch.arange(n, dtype=torch.float64)
    height = 1 - (2 * i + 1) / n
    angle = i * math.pi * (3 - math.sqrt(5))
    flat = (1 - height**2).sqrt()
    return torch.stack([flat * angle.cos(), flat * angle.sin(), height], dim=1)


def circle(n: int) -> Tensor:
    """n even points on the circle."""
    angle = torch.arange(n, dtype=torch.float64) * (2 * math.pi / n)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Equations against autograd, then gradients at named configurations."""
    tau = settings.tau
    invariant, euler = [], {"printed": 0.0, "corrected": 0.0}
    random = []
    for seed in settings.seeds:
        z1, z2 = unit_views(settings.n, 3, 1.0, 1.0, seed)
        random += [tangential(z1, tau), tangential(unit_views(settings.n, 2, 1, 1, seed)[0], tau)]
        for psi, slope in PSI.values():
            invariant.append(
                float((gradient(z1, psi, tau) - equation_7(z1, slope, tau)).abs().max())
            )
            first = z1.clone().requires_grad_()
            value = cs.Generalised(psi, cs.Gaussian(tau=tau))(first, z2)
            auto = 2 * settings.n * torch.autograd.grad(value, first)[0]
            for form in euler:
                ours = equation_6(z1, z2, slope, tau, printed=form == "printed")
                euler[form] = max(euler[form], float((auto - ours).abs().max()))
    even = {f"circle, {n}": tangential(circle(n), tau) for n in settings.n_atoms}
    solids = ("tetrahedron", "octahedron", "cube", "icosahedron")
    even |= {name: tangential(solid(name), tau) for name in solids}
    z = circle(5)
    integral = equation_7(z, torch.ones_like, tau)
    multiplier = (integral * z).sum(dim=1, keepdim=True)  # c
    scales = [2.0**i for i in range(settings.doublings)]
    some = unit_views(settings.n, 3, 1.0, 0.0, settings.seeds[0])[0]
    apart = unit_views(6, 2, 1.0, 0.0, settings.seeds[0])[0]
    return {
        "invariant": max(invariant),
        "euler": euler,
        "even": even,
        "random": random,
        "spread": float((integral[:, None] - integral).norm(dim=2).max()),
        "aside": float((integral - multiplier * z).norm(dim=1).max()),
        "multiplier": multiplier.flatten().tolist(),
        "fibonacci": {str(n): tangential(fibonacci(n), tau) for n in settings.n_fibonacci},
        "constant": float(gradient(torch.ones(settings.n, 3).double(), "log1p", tau).abs().max()),
        "scales": scales,
        "scaled": [
            float(gradient(s * solid("cube"), "log1p", tau).norm(dim=1).max()) for s in scales
        ],
        "scaled_random": [
            float(gradient(s * some, "log1p", tau).norm(dim=1).max()) for s in scales
        ],
        "pictures": {
            name: [points.tolist(), (-gradient(points, "log1p", tau)).tolist()]
            for name, points in (("even", circle(6)), ("random", apart))
        },
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Two equations, four statements on stationary points."""
    solids = [v for name, v in result["even"].items() if not name.startswith("circle")]
    return [
        INVARIANT.judge(error=result["invariant"]),
        EULER.judge(
            printed={"error": result["euler"]["printed"]},
            corrected={"error": result["euler"]["corrected"]},
        ),
        EVEN.judge(even=list(result["even"].values()), random=result["random"]),
        CONDITION.judge(
            printed={"spread": result["spread"]},
            corrected={
                "tangential": result["aside"],
                "multiplier_spread": max(result["multiplier"]) - min(result["multiplier"]),
                "multiplier": result["multiplier"][0],
            },
        ),
        FIBONACCI.judge(
            expected={"tangential": list(result["fibonacci"].values())},
            ours={"tangential": solids},
        ),
        CONSTANT.judge(gradient=result["constant"]),
        SCALED.judge(
            at_1=result["scaled"][0], last=result["scaled"][-1], largest_scale=result["scales"][-1]
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Gradients on the circle, their tangential parts by configuration, and scaled maps."""
    canvas, ((even, random), (bars, scaled)) = style.canvas(2, 2, height=2.9)
    for axis, (name, (z, pull)) in zip((even, random), result["pictures"].items(), strict=True):
        turn = [2 * math.pi * i / 200 for i in range(201)]
        axis.plot([math.cos(t) for t in turn], [math.sin(t) for t in turn], color="#d0d0d0")
        x, y = zip(*z, strict=True)
        u, v = zip(*pull, strict=True)
        axis.quiver(x, y, u, v, color=style.COLOURS[1], scale=2.2, width=0.009)
        axis.scatter(x, y, s=22, color=style.COLOURS[0], zorder=3)
        axis.set_aspect("equal")
        axis.set_xlim(-1.55, 1.55)
        axis.set_ylim(-1.55, 1.55)
        title = "even: the pull is parallel to z" if name == "even" else "random: it is not"
        style.label(axis, "z_1", "z_2", title)
    groups = {
        "even atoms": result["even"].values(),
        "Fibonacci": result["fibonacci"].values(),
        "random": result["random"],
    }
    for i, values in enumerate(groups.values()):
        bars.scatter([i] * len(values), [max(v, 1e-18) for v in values], s=16)
    bars.axhline(1e-10, color=style.GREY, linestyle="--", linewidth=0.8)
    bars.set_yscale("log")
    bars.set_xticks(range(3), list(groups))
    bars.set_xlim(-0.5, 2.5)
    style.label(bars, "points on the sphere", "tangential gradient", "only orbits are stationary")
    scaled.plot(result["scales"], [max(v, 1e-18) for v in result["scaled"]], "o-", label="cube")
    scaled.plot(
        result["scales"], [max(v, 1e-18) for v in result["scaled_random"]], "s-", label="random"
    )
    scaled.set_xscale("log", base=2)
    scaled.set_yscale("log")
    scaled.legend()
    style.label(scaled, "scale s of the map", "gradient", "Prop. A.1: it fades with the scale")
    return canvas
