"""Prop. C.1: the loss as attraction, expected repulsion and entropy.

Paper: cosentino2022, App. C, eqs. (13)-(15). With p_i(l) proportional to exp(beta f_i . f~_l) over
the negatives of i,

    loss = mean_i [ -beta f1_i . f2_i + beta f1_i . E_p[f~] + H(p_i) ]

Judged: the identity, by transcription of eq. (1); the number of negatives that count, exp H(p),
falls as beta grows; at its ends all of them count, or the hardest alone.

Errata, typos and remarks of ours (each claim says which). Eq. (13) prints a minus before the second
term; its own proof, eq. (15), has the plus. App. C calls beta the temperature and says that
increasing the temperature reduces the support of the negatives: beta is its inverse, and with a
growing temperature tau the support grows.

Deviations: batches of random points and of clustered ones, not of a trained network; the identity
holds for any.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Remark, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

SIGN = Erratum(
    "G9.identity",
    "Prop. C.1, eq. (13)",
    "loss = attraction - expected repulsion + entropy.",
    "error < 1e-10",
    "loss = attraction + expected repulsion + entropy.",
    "error < 1e-10",
    quote="- beta f_i^(1)T E[f~] + H(D_-i)",
    why="the text after it has this term push f_i away from the others: with the printed sign "
    "it would pull; the proof, eq. (15), ends with the right one",
    kind="typo",
)
SUPPORT = Stated(
    "G9.support",
    "the effective number of negatives falls as beta grows",
    "App. C",
    "reduces the support of the candidates",
    "largest_step < 0 and share_at_least_beta > 0.999",
)
LIMIT = Stated(
    "G9.limit",
    "as beta grows the expectation becomes the hardest negative, and the entropy vanishes",
    "App. C",
    "only the closest",
    "distance_from_hardest < 1e-3 and entropy < 1e-3",
)
TEMPERATURE = Remark(
    "G9.temperature",
    "App. C: beta is called the temperature parameter",
    "the support falls as tau = 1/beta grows.",
    "largest_step < 0",
    "it falls as beta grows, as the paper says: its parameter is an inverse temperature.",
    "largest_step < 0",
)
CLAIMS = (SIGN, SUPPORT, LIMIT, TEMPERATURE)


@dataclass(frozen=True)
class Settings:
    """Batches and temperatures.

    Args:
        seeds: a random and a clustered batch each.
        n, d: pairs and dimensions; 128 is the batch of Fig. 3, 128 the projector of Sec. 2.
        betas: 2 in Sec. 2; the ends stand for 0 and infinity.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n: int = 128
    d: int = 16
    betas: tuple[float, ...] = (1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 200.0, 1e6)


QUICK = Settings(seeds=(0, 1), n=24, d=6)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), d=128)

KINDS = ("random", "clustered")


def batch(kind: str, n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two views, around one centre or around eight."""
    draw = torch.Generator().manual_seed(seed)
    z, step = torch.randn(2, n, d, dtype=torch.float64, generator=draw)
    if kind == "clustered":
        centres = 3 * torch.randn(8, d, dtype=torch.float64, generator=draw)
        z = z + centres[torch.arange(n) % 8]
    return z, z + 0.3 * step


def transcribed(z1: Tensor, z2: Tensor, beta: float) -> float:
    """Eq. (1), sample by sample."""
    f1, f2 = (z / z.norm(dim=1, keepdim=True) for z in (z1, z2))
    total = 0.0
    for i in range(len(f1)):
        others = [j for j in range(len(f1)) if j != i]
        s = beta * torch.cat([f1[others], f2[others]]) @ f1[i]
        total += float(torch.logsumexp(s, 0) - beta * f1[i] @ f2[i])
    return total / len(f1)


def parts(kind: str, settings: Settings, seed: int) -> list[dict[str, float]]:
    """The terms at every beta."""
    z1, z2 = batch(kind, settings.n, settings.d, seed)
    terms = []
    for beta in settings.betas:
        contrast = cs.diagnostics.Contrast(cs.Cosine(tau=1 / beta), cs.AllButPair(), "first")
        seen = cs.diagnostics.anatomy(z1, z2, contrast)
        exact = transcribed(z1, z2, beta)
        scale = max(1.0, abs(exact))
        rest = seen.entropy - seen.attraction
        terms.append(
            {
                "beta": beta,
                "corrected": abs(rest + seen.repulsion - exact) / scale,
                "printed": abs(rest - seen.repulsion - exact) / scale,
                "attraction": seen.attraction,
                "repulsion": seen.repulsion,
                "entropy": seen.entropy,
                "share": seen.effective_negatives / seen.n_negatives,
                "from_hardest": abs(seen.repulsion - float(seen.hardness[:, 0].mean())) / beta,
            }
        )
    return terms


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Both kinds of batches over the seeds."""
    return {
        kind: [
            keep(f"{kind} {seed}", lambda k=kind, s=seed: parts(k, settings, s))
            for seed in settings.seeds
        ]
        for kind in KINDS
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """The identity with both signs, the support and its ends."""
    rows = [row for kind in KINDS for row in result[kind]]
    rising = [[point["share"] for point in row] for row in rows]
    fall = [max(b - a for a, b in itertools.pairwise(r)) for r in rising]
    climb = [max(a - b for a, b in itertools.pairwise(r)) for r in rising]
    every = [point for row in rows for point in row]
    return [
        SIGN.judge(
            printed={"error": max(point["printed"] for point in every)},
            corrected={"error": max(point["corrected"] for point in every)},
        ),
        SUPPORT.judge(largest_step=fall, share_at_least_beta=[r[0] for r in rising]),
        LIMIT.judge(
            distance_from_hardest=[row[-1]["from_hardest"] for row in rows],
            entropy=[row[-1]["entropy"] for row in rows],
        ),
        TEMPERATURE.judge(expected={"largest_step": climb}, ours={"largest_step": fall}),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """The terms against beta, and the negatives that count."""
    canvas, axes = style.canvas(1, 2, width=3.8)
    terms, support = axes[0]
    first = [point for point in result["clustered"][0] if 0.05 < point["beta"] < 1e3]
    betas = [point["beta"] for point in first]
    for i, (name, text) in enumerate(
        (
            ("attraction", "attraction / beta"),
            ("repulsion", "expected repulsion / beta"),
            ("entropy", "entropy / beta"),
        )
    ):
        values = [point[name] / point["beta"] for point in first]
        terms.plot(betas, values, marker="o", color=style.COLOURS[i], label=text)
    terms.set_xscale("log")
    terms.set_ylim(-1.1, 3)
    terms.legend(loc="best")
    style.label(terms, "beta", "mean over samples", "the terms of Prop. C.1, clustered batch")
    for i, kind in enumerate(KINDS):
        for j, row in enumerate(result[kind]):
            shown = [p for p in row if 0.05 < p["beta"] < 1e3]
            support.plot(
                [p["beta"] for p in shown],
                [p["share"] for p in shown],
                color=style.COLOURS[i],
                alpha=0.8,
                label=None if j else kind,
            )
    support.set_xscale("log")
    support.set_yscale("log")
    support.legend(loc="best")
    style.label(support, "beta", "effective share of the negatives", "fewer count as beta grows")
    return canvas
