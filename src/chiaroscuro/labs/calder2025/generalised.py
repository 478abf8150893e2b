"""Def. 2.1: the generalised loss, and how it relates to NT-Xent.

Paper: calder2025, eqs. (1), (4), (5) and the passage after Def. 2.1: with psi(t) = log(1+t) and
eta(t) = exp(-t/tau) on the sphere, eq. (4) "remains fundamentally consistent" with eq. (1), the
indicator of x != y being negligible for large n.

What holds. psi of the ratio is log(n k_ii + sum_j k_ij) - log(n k_ii): exactly InfoNCE over the
other view in which the positive counts n+1 times, minus log n. It is not eq. (1) up to a constant,
nor NT-Xent with its sum in place of the mean, at any n: eq. (1) has two views among its
candidates, and the weight of the positive grows with n. The difference is measured on batches
between collapsed and spread out; a constant would leave it unchanged.

Letters: f(T(x)), f(T'(x)) are z1, z2. Deviations: none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Remark, Stated, at_once, style

__all__ = [
    "CLAIMS",
    "LAPTOP",
    "PAPER",
    "QUICK",
    "Settings",
    "claims",
    "equation_1",
    "figure",
    "run",
    "unit_views",
]

NAIVE = Stated(
    "V1.naive",
    "the generalised loss equals a transcription of eqs. (4), (5), for several psi and eta",
    "Def. 2.1, eqs. (4), (5)",
    "definition",
    "error < 1e-10",
)
WEIGHTED = Stated(
    "V1.infonce",
    "with psi=log(1+t), eta=exp(-t/tau) on the sphere it is InfoNCE over the other view with the "
    "positive weighted n+1, minus log n",
    "after Def. 2.1",
    "related to eq. (1)",
    "error < 1e-10",
)
CONSTANT = Remark(
    "V1.constant",
    "after Def. 2.1: the formulation remains consistent with the NT-Xent cost",
    "eq. (4) differs from eq. (1), or from NT-Xent, by a constant.",
    "spread_eq1 < 1e-10 and spread_nt_xent < 1e-10",
    "it differs by a constant, log n, from InfoNCE with the positive weighted n+1.",
    "spread < 1e-10",
)
CLAIMS = (NAIVE, WEIGHTED, CONSTANT)

PSI = {
    "log1p": math.log1p,
    "log": math.log,
    "identity": lambda t: t,
    "sqrt": math.sqrt,
}
ETA = {
    "gauss": (lambda t: torch.exp(-t / 0.5), lambda t: math.exp(-t / 0.5)),
    "cauchy": (lambda t: 1 / (1 + t), lambda t: 1 / (1 + t)),
}


@dataclass(frozen=True)
class Settings:
    """Which batches are compared.

    Args:
        seeds: a random batch each.
        n: pairs of a batch; the paper argues for large n.
        d: dimension; any.
        tau: 0.5 as in SimCLR; the paper gives none.
        noise: of the second view, in units of the first.
        steps: batches between collapsed and spread out.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n: tuple[int, ...] = (8, 64, 512, 1024)
    d: int = 8
    tau: float = 0.5
    noise: float = 0.3
    steps: int = 9


QUICK = Settings(seeds=(0, 1), n=(8, 64, 256))
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), n=(8, 64, 512, 4096))


def unit_views(n: int, d: int, spread: float, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Two views on the sphere: all in one place at spread 0, all over it at 1."""
    generator = torch.Generator().manual_seed(seed)
    first, second = torch.randn(2, n, d, dtype=torch.float64, generator=generator)
    pole = torch.zeros(d, dtype=torch.float64)
    pole[0] = 1.0
    z1 = (1 - spread) * pole + spread * first / math.sqrt(d)
    z2 = z1 + noise * spread * second / math.sqrt(d)
    return z1 / z1.norm(dim=1, keepdim=True), z2 / z2.norm(dim=1, keepdim=True)


def equation_1(z1: Tensor, z2: Tensor, tau: float, mean: bool = True) -> float:
    """Eq. (1): log(1 + sum_h E_y[1 exp(sim/tau)] / exp(sim+/tau)), the anchors of both views.

    With `mean` False the expectation over y is a sum: that is NT-Xent as it is used.
    """
    n, kernel = len(z1), cs.Cosine(tau=tau)
    positive = kernel.log(z1, z2).diagonal()
    rows = []
    for a, b in ((z1, z2), (z2, z1)):
        log_k = torch.cat([kernel.log(a, a), kernel.log(a, b)], dim=1)
        oneself = torch.eye(n, dtype=torch.bool).repeat(1, 2)
        repel = log_k.masked_fill(oneself, -math.inf).logsumexp(dim=1)
        rows.append(torch.nn.functional.softplus(repel - positive - math.log(n) * mean))
    return float(torch.cat(rows).mean())


def naive(z1: Tensor, z2: Tensor, psi: str, eta: str) -> float:
    """Eqs. (4), (5) as loops over x and y, the mean over both orders of T and T'."""
    total, n = 0.0, len(z1)
    similar = ETA[eta][1]
    for a, b in ((z1.tolist(), z2.tolist()), (z2.tolist(), z1.tolist())):
        for i in range(n):
            values = [
                similar(sum((p - q) ** 2 for p, q in zip(a[i], row, strict=True)) / 2) for row in b
            ]
            total += PSI[psi](sum(values) / n / values[i])
    return total / (2 * n)


def weighted(z1: Tensor, z2: Tensor, tau: float) -> float:
    """InfoNCE over the other view, the positive weighted n+1, both views as anchors."""
    n, log_k = len(z1), cs.Gaussian(tau=tau).log(z1, z2)
    log_weights = torch.zeros_like(log_k).fill_diagonal_(math.log(n + 1))
    repel = [(log_k + log_weights).logsumexp(dim=k) for k in (0, 1)]
    return float((torch.cat(repel) - log_k.diagonal().repeat(2)).mean())


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Transcription and identity on random batches; differences along a path of batches."""
    errors = []
    for seed in settings.seeds:
        z1, z2 = unit_views(12, settings.d, 1.0, settings.noise, seed)
        for psi in PSI:
            for eta, (similar, _) in ETA.items():
                ours = float(cs.Generalised(psi, similar)(z1, z2))
                errors.append(abs(ours - naive(z1, z2, psi, eta)))
    spreads = [(step + 1) / settings.steps for step in range(settings.steps)]
    objective = cs.Generalised("log1p", cs.Gaussian(tau=settings.tau))
    nt_xent = cs.InfoNCE(cs.Cosine(tau=settings.tau), cs.AllButSelf())
    paths, identity = [], 0.0
    for n in settings.n:
        for seed in settings.seeds:
            row: dict[str, Any] = {"n": n, "eq1": [], "nt_xent": [], "weighted": []}
            for spread in spreads:
                z1, z2 = unit_views(n, settings.d, spread, settings.noise, seed)
                ours = float(objective(z1, z2))
                row["eq1"].append(equation_1(z1, z2, settings.tau) - ours)
                row["nt_xent"].append(float(nt_xent(z1, z2)) - ours)
                row["weighted"].append(weighted(z1, z2, settings.tau) - ours)
            identity = max(identity, *(abs(x - math.log(n)) for x in row["weighted"]))
            paths.append(row)
    return {"naive": max(errors), "identity": identity, "spreads": spreads, "paths": paths}


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Transcription, identity, and that nothing else is constant."""
    paths = result["paths"]
    spread = {
        name: [max(path[name]) - min(path[name]) for path in paths]
        for name in ("eq1", "nt_xent", "weighted")
    }
    return [
        NAIVE.judge(error=result["naive"]),
        WEIGHTED.judge(error=result["identity"]),
        CONSTANT.judge(
            expected={"spread_eq1": spread["eq1"], "spread_nt_xent": spread["nt_xent"]},
            ours={"spread": spread["weighted"]},
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Three losses minus the generalised one, along batches that spread out."""
    canvas, axes = style.canvas(1, 3, width=3.0)
    titles = {
        "eq1": "eq. (1): not a constant",
        "nt_xent": "NT-Xent: not a constant",
        "weighted": "positive weighted n+1: log n",
    }
    sizes = list(dict.fromkeys(path["n"] for path in result["paths"]))
    for axis, (name, title) in zip(axes[0], titles.items(), strict=True):
        for path in result["paths"]:
            colour = style.COLOURS[sizes.index(path["n"])]
            first = path is next(p for p in result["paths"] if p["n"] == path["n"])
            text = f"n {path['n']}" if first else None
            axis.plot(result["spreads"], path[name], color=colour, linewidth=1.1, label=text)
        style.label(axis, "spread of the batch", "difference to Generalised", title)
    axes[0, 0].legend()
    return canvas
