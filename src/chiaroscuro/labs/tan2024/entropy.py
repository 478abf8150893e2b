"""Thm 5.1: exponential kernels from maximum entropy, problems (P1) and (P2).

Paper: tan2024, Sec. 5.1. (P1): the largest entropy of weights alpha whose mean similarity reaches
that of the positive, psi_1. (P2): its relaxation with the multiplier tau, whose value at the
optimum is tau times InfoNCE.

Judged: Thm 5.1's closed form against a convex solver and by its optimality conditions; tau (P1) <=
(P2) for every tau, with equality at the dual optimum; (P2)/tau against the objective.

Letters: the paper's psi_i are similarities q . p_i, of which psi_1 is the positive's (psi is an
outer function elsewhere). Deviations: similarities are random; the dual optimum lies inside only
if psi_1 is between the mean and the largest, so three places of psi_1 are drawn: below the mean
((P1) = log m), between, and at the top ((P1) = 0, reached as tau -> 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import optimize

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

SOLVER = Stated(
    "S4.solver",
    "the closed form of (P2) is what a convex solver finds",
    "Thm 5.1",
    "identity",
    "error < 1e-6",
)
OPTIMAL = Stated(
    "S4.optimal",
    "the softmax weights satisfy the optimality conditions of (P2), and give the closed form",
    "Thm 5.1, proof",
    "identity",
    "slope_spread < 1e-10 and value_error < 1e-10",
)
BOUND = Stated(
    "S4.bound",
    "tau times (P1) is at most (P2), for every tau > 0",
    "Sec. 5.1, before (P2)",
    "upper bound",
    "largest_violation < 1e-6",
)
DUAL = Stated(
    "S4.dual",
    "the bound is reached at the dual optimum of tau",
    "Sec. 5.1, Lagrangian dual",
    "equality",
    "gap < 1e-6",
)
INFONCE = Stated(
    "S4.infonce",
    "(P2) is tau times the InfoNCE loss",
    "Thm 5.1 and eq. (8)",
    "identity",
    "error < 1e-10",
)
CLAIMS = (SOLVER, OPTIMAL, BOUND, DUAL, INFONCE)


@dataclass(frozen=True)
class Settings:
    """Which problems are solved.

    Args:
        seeds: random similarities each.
        m: candidates of an anchor.
        taus: of (P2); the paper tunes tau in [0, 1].
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    m: tuple[int, ...] = (4, 8, 16)
    taus: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0)


QUICK = Settings(seeds=(0, 1), m=(4, 8), taus=(0.2, 0.5, 1.0))
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(20)), m=(4, 8, 16, 32))


def similarities(m: int, place: str, seed: int) -> np.ndarray:
    """Random similarities, the positive's first: below the mean, between, or the largest."""
    rng = np.random.Generator(np.random.Philox(seed))
    values = rng.uniform(-1, 1, m)
    others = values[1:]
    values[0] = {
        "below": others.mean() - 0.3,
        "between": (others.mean() + others.max()) / 2,
        "top": others.max() + 0.2,
    }[place]
    return values


def closed(values: np.ndarray, tau: float) -> float:
    """(P2) by Thm 5.1: -tau log(exp(psi_1/tau) / sum_i exp(psi_i/tau))."""
    scaled = torch.from_numpy(values / tau)
    return tau * float(scaled.logsumexp(dim=0) - scaled[0])


def entropy(alpha: np.ndarray) -> float:
    """H(alpha), with 0 log 0 = 0."""
    alpha = np.clip(alpha, 1e-300, None)
    return float(-(alpha * np.log(alpha)).sum())


def solve(values: np.ndarray, tau: float | None) -> float:
    """(P2) at tau, or (P1) if tau is None, by sequential quadratic programming."""
    m = len(values)

    def minus(alpha: np.ndarray) -> float:
        gain = 0.0 if tau is None else float(values[0] - alpha @ values)
        return gain - (tau or 1.0) * entropy(alpha)

    def slope(alpha: np.ndarray) -> np.ndarray:
        along = np.zeros(m) if tau is None else -values
        return along + (tau or 1.0) * (np.log(np.clip(alpha, 1e-300, None)) + 1)

    held: list[dict[str, Any]] = [{"type": "eq", "fun": lambda alpha: alpha.sum() - 1}]
    if tau is None:
        held.append({"type": "ineq", "fun": lambda alpha: alpha @ values - values[0]})
    start = np.full(m, 0.5 / m)
    start[values.argmax()] += 0.5
    solution = optimize.minimize(
        minus,
        start,
        jac=slope,
        bounds=[(1e-12, 1)] * m,
        constraints=held,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return -float(solution.fun)


def dual(values: np.ndarray) -> float:
    """min over tau of (P2)/tau, in beta = 1/tau >= 0, where it is convex: log-sum-exp - linear."""

    def at(beta: float) -> float:
        return math.log(len(values)) if beta == 0 else beta * closed(values, 1 / beta)

    inside = optimize.minimize_scalar(
        at, bounds=(0, 200), method="bounded", options={"xatol": 1e-10}
    )
    return min(float(inside.fun), at(0.0), at(200.0))


def conditions(values: np.ndarray, tau: float) -> tuple[float, float]:
    """Of softmax weights: how far the slopes of E differ, and -E from the closed form."""
    alpha = torch.from_numpy(values / tau).softmax(dim=0).numpy()
    slopes = -values + tau * (np.log(alpha) + 1)
    value = -(values[0] - alpha @ values - tau * entropy(alpha))
    return float(np.ptp(slopes)), abs(value - closed(values, tau))


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """All problems, each three ways."""
    result: dict[str, Any] = {
        name: [] for name in ("solver", "slopes", "value", "violation", "gap", "infonce")
    }
    for seed in settings.seeds:
        for m in settings.m:
            for place in ("below", "between", "top"):
                values = similarities(m, place, seed)
                largest = solve(values, None) if place != "top" else 0.0
                result["gap"].append(abs(dual(values) - largest))
                for tau in settings.taus:
                    exact = closed(values, tau)
                    result["solver"].append(abs(solve(values, tau) - exact))
                    result["violation"].append(tau * largest - exact)
                    spread, error = conditions(values, tau)
                    result["slopes"].append(spread)
                    result["value"].append(error)
        generator = torch.Generator().manual_seed(seed)
        z1, z2 = torch.randn(2, 8, 4, dtype=torch.float64, generator=generator)
        for tau in settings.taus:
            objective = cs.InfoNCE(cs.Dot(tau=tau), cs.OtherView(), anchors="first")
            rows = [np.roll((z1 @ z2.T)[i].numpy(), -i) for i in range(8)]  # the positive first
            mean = float(np.mean([closed(row, tau) for row in rows]))
            result["infonce"].append(abs(mean - tau * float(objective(z1, z2))))
    grid = np.geomspace(0.02, 20, 120)
    curves = {}
    for place in ("below", "between", "top"):
        values = similarities(settings.m[-1], place, settings.seeds[0])
        curves[place] = {
            "bound": [closed(values, tau) / tau for tau in grid],
            "entropy": solve(values, None) if place != "top" else 0.0,
        }
    values = np.sort(similarities(settings.m[-1], "between", settings.seeds[0]))[::-1]
    weights = {
        str(tau): torch.from_numpy(values.copy() / tau).softmax(dim=0).tolist()
        for tau in (0.05, 0.2, 1.0)
    }
    return {
        **{name: max(values) for name, values in result.items()},
        "taus": grid.tolist(),
        "curves": curves,
        "weights": weights,
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Five identities and inequalities."""
    return [
        SOLVER.judge(error=result["solver"]),
        OPTIMAL.judge(slope_spread=result["slopes"], value_error=result["value"]),
        BOUND.judge(largest_violation=result["violation"]),
        DUAL.judge(gap=result["gap"]),
        INFONCE.judge(error=result["infonce"]),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """The bound over tau with (P1) below it, and the weights that reach it."""
    canvas, axes = style.canvas(1, 2, width=3.8)
    bound, weights = axes[0]
    names = {"below": "below the mean", "between": "between", "top": "the largest"}
    for i, (place, row) in enumerate(result["curves"].items()):
        colour = style.COLOURS[i]
        bound.plot(result["taus"], row["bound"], color=colour, label=rf"$\psi_1$ {names[place]}")
        bound.axhline(row["entropy"], color=colour, linestyle=":", linewidth=1)
    bound.set_xscale("log")
    bound.set_ylim(-0.15, 6)
    bound.legend(title=r"line (P2)$/\tau$, dots (P1)", title_fontsize=8)
    style.label(bound, r"$\tau$", "nats", "the bound touches (P1) at its lowest point")
    width = 0.26
    for i, (tau, row) in enumerate(result["weights"].items()):
        places = [j + 1 + (i - 1) * width for j in range(len(row))]
        weights.bar(places, row, width=width, color=style.COLOURS[i], label=rf"$\tau = {tau}$")
    weights.legend()
    style.label(weights, "candidate, by similarity", r"weight $\alpha$", "softmax weights of (P2)")
    return canvas
