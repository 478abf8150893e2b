"""Beyond the papers: is it decided by how much of its start a learner has forgotten?

Paper: semantic2025, Secs 5, A.7 to A.11, with the projector of cosentino2022 (Fig. 1) and the
unused weights of DirectCLR (rusak2022, App. E). In each a figure of the paper appears in some
trainings and not in others, and each time it seems to hang on what is left of the random start:
decoupled decay leaves exp(-lr wd steps) of it, and a start of scale s weighs s times as much. So
one number,

    forgotten = lr wd steps - log s,

should decide. Four experiments, small enough for seconds:

    symbols    equivalent symbols of CModAdd come together (E2, E3)
    twins      artificial synonyms come together: symbols with the same law of contexts, rows and
               contexts free (the mechanism of E4, without the text)
    projector  the effective rank of a linear W falls to the dimension of the data (G2.rank)
    unused     weights that no loss sees go to zero beside those that one sees (C8): kept aside

Prediction, written before any of them was run. (1) In each of the first three, one threshold on
`forgotten` tells runs in which the paper's effect appears from the others for at least 90 % of
them, and better than the start or the decay alone does. (2) The mean of the three thresholds,
carried over unchanged, is right for at least 80 % of the runs of the fourth, which plays no part in
choosing it. (3) Decay through the gradient, as `torch.optim.Adam` has it, does not follow this
number: for weights without a loss Adam divides the decay out, so that they fall by lr a step and
are gone after about s / lr steps whatever wd is.

The effect is said to appear where: symbols, the ratio of equivalent to other distances is below 0.5
and 90 % of nearest neighbours are right; twins, the same; projector, the effective rank by squares
is below the dimension of the data plus one; unused, their norm is below a tenth of the others'.

Deviations: none of this is in the papers. Data, sizes and grids are ours.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style
from chiaroscuro.labs.semantic2025._modular import Learner, contrasted, within
from chiaroscuro.labs.trained import linear

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

ENOUGH = "n_runs >= 40 and n_seeds >= 2"
LAW = Stated(
    "E2.forgetting",
    "in the three experiments one threshold on lr wd steps - log(start) tells where the paper's "
    "effect appears, better than the decay or the start alone",
    "Secs 5, A.7 to A.11 (ours)",
    "not stated",
    "accuracy >= 0.9 and accuracy >= by_decay_alone and accuracy >= by_start_alone",
    enough=ENOUGH,
)
KEPT = Stated(
    "E2.kept_aside",
    "the mean threshold of the three, carried over, is right for the experiment kept aside",
    "rusak2022, App. E (ours)",
    "not stated",
    "accuracy >= 0.8",
    enough=ENOUGH,
)
COUPLED = Stated(
    "E2.coupled_law",
    "decay through the gradient of Adam takes weights without a loss off in start / lr steps, "
    "whatever the decay is",
    "Sec. 5: Adam with weight decay (ours)",
    "not stated",
    "mean(steps_over_predicted) > 0.5 and mean(steps_over_predicted) < 2",
    enough="n_runs >= 12",
)
CLAIMS = (LAW, KEPT, COUPLED)


@dataclass(frozen=True)
class Settings:
    """Grids of decay and start; all ours.

    Args:
        seeds: of every point of a grid.
        lr, steps: of Adam, of symbols and of the three others.
        forgets: values of lr wd steps.
        starts: scales of the start, in units of the usual one.
        rates: learning rates of the coupled runs.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    lr: tuple[float, float] = (4e-3, 8e-3)
    steps: tuple[int, int] = (1200, 600)
    forgets: tuple[float, ...] = (0.0, 1.0, 2.5, 6.0)
    starts: tuple[float, ...] = (2.0, 0.6, 0.2, 0.04)
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)


QUICK = Settings(seeds=(0,), steps=(8, 30), forgets=(0.0, 3.0), starts=(1.0, 0.1), rates=(1e-2,))
LAPTOP = Settings()
PAPER = Settings(seeds=(0, 1, 2, 3, 4), lr=(1e-4, 1e-4), steps=(64_000, 64_000))


def point(forget: float, start: float, seed: int, **seen: Any) -> dict[str, Any]:
    """One run: where it is in the diagram, and what was seen."""
    return {"decay": forget, "start": start, "seed": seed, **seen}


def grid(settings: Settings) -> list[tuple[float, float, int]]:
    """Every lr wd steps, start and seed."""
    return list(itertools.product(settings.forgets, settings.starts, settings.seeds))


# ---- the experiments ----


def symbols(settings: Settings) -> list[dict[str, Any]]:
    """E2, E3: all points in one stack of learners."""
    points, steps, lr = grid(settings), settings.steps[0], settings.lr[0]
    task = cs.data.contrastive_mod_add()
    learners = [
        Learner(lr=lr, weight_decay=forget / (lr * steps), start=start)
        for forget, start, _ in points
    ]
    seeds = [seed for _, _, seed in points]
    trained = contrasted([within(task, s) for s in seeds], seeds, learners, steps, 32, looks=1)
    return [
        point(*at, ratio=row["ratio"][-1], nearest=row["nearest"][-1],
              appears=row["ratio"][-1] < 0.5 and row["nearest"][-1] >= 0.9)
        for at, row in zip(points, trained, strict=True)
    ]  # fmt: skip


def decayed(parameters: list[torch.Tensor], settings: Settings, forget: float) -> Any:
    """AdamW whose lr wd steps is `forget`."""
    lr = settings.lr[1]
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=forget / (lr * settings.steps[1]))


def twins(settings: Settings, forget: float, start: float, seed: int) -> dict[str, Any]:
    """Symbols in pairs of one law; rows and contexts free, the population loss of eq. (2).

    A loop of its own: the expected loss over all symbols and contexts has no pairs to draw.
    """
    draw = torch.Generator().manual_seed(seed)
    pairs, contexts, d = 12, 40, 8
    law = torch.softmax(1.5 * torch.randn(pairs, contexts, generator=draw), dim=1)
    p = law.repeat(2, 1) / (2 * pairs)
    marginal = p.sum(dim=0).log()
    h = (start * torch.randn(2 * pairs, d, generator=draw)).requires_grad_()
    z = torch.randn(contexts, d, generator=draw).requires_grad_()
    adam = decayed([h, z], settings, forget)
    for _ in range(settings.steps[1]):
        S = h @ z.T
        loss = (p * ((S + marginal).logsumexp(dim=1, keepdim=True) - S)).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
    seen = cs.diagnostics.semantic_ratio(h.detach(), np.arange(2 * pairs) % pairs)
    appears = seen.ratio < 0.5 and seen.nearest >= 0.9
    return point(forget, start, seed, ratio=seen.ratio, nearest=seen.nearest, appears=appears)


def views(n: int, d: int, r: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Two noisy views of points in r of d dimensions."""
    x = torch.randn(n, r, generator=draw)
    pad = torch.zeros(n, d - r)
    noise = lambda: 0.3 * torch.randn(n, r, generator=draw)
    return torch.cat([x + noise(), pad], dim=1), torch.cat([x + noise(), pad], dim=1)


def fitted(W: Any, objective: Any, pair: Any, settings: Settings, forget: float) -> torch.Tensor:
    """W after its steps on pairs of views, by the decay that forgets so much."""
    layer, steps = linear(W), settings.steps[1]
    cs.engine.fit(
        layer, objective, (pair() for _ in range(steps)), decayed([layer.weight], settings, forget),
        steps_per_epoch=steps, options=cs.engine.FitOptions(device="cpu"),
    )  # fmt: skip
    return layer.weight.detach()


def projector(settings: Settings, forget: float, start: float, seed: int) -> dict[str, Any]:
    """A linear W on data that fill r of its d inputs: the rest is its start."""
    draw = torch.Generator().manual_seed(seed)
    d, r, out = 16, 4, 12
    W = start * torch.randn(out, d, generator=draw) / d**0.5
    objective = cs.InfoNCE(cs.Dot(tau=1.0))
    W = fitted(W, objective, lambda: views(48, d, r, draw), settings, forget)
    s = torch.linalg.svdvals(W).double().square()
    rank = float(torch.exp(torch.special.entr(s / s.sum()).sum()))
    return point(forget, start, seed, rank=rank, appears=rank < r + 1)


def unused(settings: Settings, forget: float, start: float, seed: int) -> dict[str, Any]:
    """A linear layer of which the loss sees the first outputs: what becomes of the others."""
    draw = torch.Generator().manual_seed(seed)
    d, out, seen = 8, 16, 4
    W = start * torch.randn(out, d, generator=draw) / d**0.5
    objective = cs.OnDims(cs.InfoNCE(cs.Dot(tau=1.0)), 0, seen)
    W = fitted(W, objective, lambda: views(48, d, d, draw), settings, forget)
    norms = W.norm(dim=1)
    share = float(norms[seen:].mean() / norms[:seen].mean())
    return point(forget, start, seed, share=share, appears=share < 0.1)


def coupled(settings: Settings, rate: float, decay: float, start: float, seed: int) -> dict:
    """Steps until Adam, decay in the gradient, has a tenth left of weights without a loss.

    A loop of its own: what the optimiser does without any loss is the subject.
    """
    draw = torch.Generator().manual_seed(seed)
    w = (start * torch.randn(64, generator=draw)).requires_grad_()
    adam = torch.optim.Adam([w], lr=rate, weight_decay=decay)
    first, most = float(w.detach().abs().mean()), int(20 * start / rate)
    steps = 0
    while steps < most and float(w.detach().abs().mean()) >= 0.1 * first:
        w.grad = torch.zeros_like(w)
        adam.step()
        steps += 1
    return {
        "rate": rate, "decay": decay, "start": start, "steps": steps, "predicted": start / rate
    }  # fmt: skip


EXPERIMENTS = {"twins": twins, "projector": projector, "unused": unused}


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """All points of all experiments, and the coupled runs."""
    result: dict[str, Any] = {"n_seeds": len(settings.seeds)}
    result["symbols"] = keep("symbols", lambda: symbols(settings))
    for name, one in EXPERIMENTS.items():
        result[name] = keep(name, lambda one=one: [one(settings, *at) for at in grid(settings)])
    result["coupled"] = keep(
        "coupled",
        lambda: [
            coupled(settings, rate, decay, start, settings.seeds[0])
            for rate in settings.rates
            for decay in (1e-3, 1e-2, 1e-1)
            for start in (0.3, 1.0)
        ],
    )
    return result


# ---- the law ----


def forgotten(row: dict[str, Any]) -> float:
    """lr wd steps - log start."""
    return row["decay"] - math.log(row["start"])


def divided(rows: list[dict[str, Any]], number: Any) -> tuple[float, float]:
    """The threshold on a number that tells best where the effect appears, and its accuracy.

    Of equally good thresholds the middle one.
    """
    x = np.array([number(row) for row in rows])
    y = np.array([row["appears"] for row in rows])
    levels = np.unique(x)
    cuts = np.concatenate([[levels[0] - 1], (levels[1:] + levels[:-1]) / 2, [levels[-1] + 1]])
    right = np.array([np.mean((x > cut) == y) for cut in cuts])
    best = np.flatnonzero(right == right.max())
    return float(cuts[best].mean()), float(right.max())


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """One threshold each, the threshold carried over, and coupled decay."""
    names = ("symbols", "twins", "projector")
    split = {name: divided(result[name], forgotten) for name in names}
    cut = float(np.mean([split[name][0] for name in names]))
    aside = result["unused"]
    many = {"n_runs": len(aside), "n_seeds": result["n_seeds"]}
    alone = lambda key: [divided(result[name], lambda row: row[key])[1] for name in names]
    against = lambda key: [divided(result[name], lambda row: -row[key])[1] for name in names]
    return [
        LAW.judge(
            accuracy=[split[name][1] for name in names],
            by_decay_alone=alone("decay"),
            by_start_alone=against("start"),
            thresholds=[split[name][0] for name in names],
            share_that_appears=[
                float(np.mean([row["appears"] for row in result[name]])) for name in names
            ],
            **many,
        ),
        KEPT.judge(
            accuracy=float(np.mean([(forgotten(row) > cut) == row["appears"] for row in aside])),
            threshold=cut,
            own_threshold=divided(aside, forgotten)[0],
            own_accuracy=divided(aside, forgotten)[1],
            **many,
        ),
        COUPLED.judge(
            steps_over_predicted=[row["steps"] / row["predicted"] for row in result["coupled"]],
            n_runs=len(result["coupled"]),
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """The phase diagrams: decay against start, and where the effect appears."""
    canvas, axes = style.canvas(1, 4, width=2.7, height=2.9)
    titles = {
        "symbols": "equivalent symbols merge (E2, E3)",
        "twins": "artificial synonyms merge (E4)",
        "projector": "rank of $W$ falls (G2)",
        "unused": "unused weights vanish (C8), aside",
    }
    names = ("symbols", "twins", "projector")
    cut = float(np.mean([divided(result[name], forgotten)[0] for name in names]))
    for axis, (name, title) in zip(axes[0], titles.items(), strict=True):
        rows = result[name]
        for place in sorted({(row["decay"], row["start"]) for row in rows}):
            own = [row["appears"] for row in rows if (row["decay"], row["start"]) == place]
            share = sum(own) / len(own)
            axis.scatter(
                [place[0]], [place[1]], s=55, color=style.COLOURS[0], alpha=0.12 + 0.88 * share,
                edgecolors=style.COLOURS[0], linewidths=0.8,
            )  # fmt: skip
        threshold = cut if name == "unused" else divided(rows, forgotten)[0]
        x = np.linspace(0, max(row["decay"] for row in rows), 50)
        axis.plot(x, np.exp(x - threshold), color=style.COLOURS[1], linewidth=1)
        starts = [row["start"] for row in rows]
        axis.set_yscale("log")
        axis.set_ylim(min(starts) / 2, 2 * max(starts))
        style.label(axis, r"$\mathrm{lr} \cdot \mathrm{wd} \cdot \mathrm{steps}$", "", title)
    axes[0][0].set_ylabel("scale of the start")
    return canvas
