"""Beyond the papers: does what a learner has forgotten of its start decide what happens?

Paper: semantic2025, Secs 5, A.7 to A.11, with the projector of cosentino2022 (Fig. 1) and the
unused weights of DirectCLR (rusak2022, App. E). In each a figure of the paper appears in some
trainings and not in others, and each time it seems to hang on what is left of the random start:
decoupled decay leaves exp(-lr wd steps) of it, and a start of scale s weighs s times as much. So
one number,

    forgotten = lr wd steps - log s,

should decide. Five experiments, four of them small enough for seconds:

    symbols    equivalent symbols of CModAdd come together (E2, E3)
    twins      artificial synonyms come together: symbols with the same law of contexts, rows and
               contexts free (the mechanism of E4, without the text)
    projector  the effective rank of a linear W falls to the dimension of the data (G2.rank)
    unused     weights that no loss sees go to zero beside those that one sees (C8): kept aside
    images     a linear projector behind a small ResNet on CIFAR-10 has another spectrum than its
               random start (G2.rank, with a training that is not made for it): kept aside

Prediction, as first written, before any of them was run. (1) In each of the first three, one
threshold on `forgotten` tells runs in which the paper's effect appears from the others for at least
90 % of them, and better than the start or the decay alone does. (2) The mean of the three
thresholds, carried over unchanged, is right for at least 80 % of the runs of the fourth, which
plays no part in choosing it. (3) Decay through the gradient, as `torch.optim.Adam` has it, does not
follow this number: for weights without a loss Adam divides the decay out, so that they fall by lr a
step and are gone after about s / lr steps whatever wd is (between half and twice as many). The last
is E2.coupled_first.

A pilot of the first three with one other seed (20) chose steps and rates. After it were written:
"whatever the learning rate", and means over seeds instead of all runs together in (1) (by the first
rule, 90 % of all runs of an experiment, symbols fail with 78 %); that (2) beats the larger class;
and a second form of (3), E2.coupled_law: a weight falls by lr w / sqrt(mean w^2 so far) a step, and
of normal weights a tenth is left after 2.17 s / lr steps, between 0.9 and 1.1 times as many
(derived in `adam_alone`). So this form was not predicted: it explains what the pilot had shown:
2.03 to 2.16 times s / lr.

The pilot saw where the law may break: symbols do not merge where decay is so strong that nothing is
learnt (the share of the way from chance to the floor of the loss stands beside), and twins merge
without any decay where the rate moves a row further than its start is long. Beside the number that
is known before a training, `overlap` is what it stands for, measured: the cosine of the weights at
the end with those at the start.

Of unused weights decay leaves exp(-lr wd steps) exactly: there the threshold alone is tested, and
seeds add nothing. A first run had 16 cells of decay and start, of which 13 were right; its binomial
interval, 54 to 96 %, could not have left 80 % out even with 16 right ones. So cells were added
between those, a hundred with one seed, and their share is judged as the prediction has it: cells of
a grid are no sample. They measure the grid too: other ranges would give another share.

Prediction for images, written before any of them was run. The mean threshold of the three toys is
right for at least 80 % of 36 cells; the binomial interval of the share (Clopper and Pearson, 95 %)
must leave 80 % out, else it is undecided. A cell is one training with a seed of its own; the start
is in units of torch's own, U(-1, 1) / sqrt(d); the decay is that of W alone, and the rate is
constant. The effect: the effective rank by squares of W is below 0.8 of that of its start.

Prediction for coupled symbols, written before any at a rate below 1e-3 was run here: at the paper's
rate, 1e-4, and lr steps = 6.4, they merge with the paper's decay, 1e-2, in more than half of the
seeds, and not with 1e-3; so there is a boundary between the rates 1e-4 and 1e-3. Known were that
none of nine cells at higher rates merges, and that they do on most seeds at 1e-4 and 1e-2. New are
the decay of 1e-3, the rate 3e-4 between, and all of it beside each other.

Results, on six fresh seeds. What a learner has forgotten orders each experiment by itself, but
there is no one threshold, so that the law as predicted does not hold. Of the three toys the
projector obeys its threshold in 96 % of runs and twins in 92 %, symbols in 81 % only, for the
strongest decay keeps them from learning at all (E2.forgetting fails). Their thresholds are 1.7
(symbols), -0.2 (twins) and 1.6; that of the unused weights is 2.3, that of the images 0.5, and
either tells its own cells without an error. Carried over, the mean of the first three, 1.05, is
right for 78 of 100 cells of the unused weights (E2.kept_aside fails) and for 32 of the 36 of the
images (74 to 97 %; the larger class has 29). A first run, seeds 0 to 4, had a mean threshold of
1.23, and 13 of 16 and 30 of 36 right. Part of the error on images is one of units, noticed after
the run: their start is uniform, so that a start of 1 has 1/sqrt(3) of the standard deviation that
it has in the toys. In the toys' unit the carried threshold is right for 35 of the 36. Measured
instead of foretold, the overlap of the weights with their start tells the images without an error
and symbols no better than the number does.

Results. Coupled decay has a boundary in the rate (E2.coupled_rates holds). With 1e-2 symbols merge
on five of six seeds at 1e-4, the paper's rate, and on three at 3e-4, where one more misses two
neighbours; on the others, and on all from 1e-3 on, nothing is learnt. With 1e-3 and less they never
merge, for their start is kept (overlap 0.82 to 0.97). The steps that Adam takes to decay weights
without a loss are no fixed multiple of s / lr (1.63 at 1e-4, 1.84 at 3e-4, 2.0 from 1e-3 on): its
second moment averages over about 1,000 steps, which `adam_alone` leaves out. So E2.coupled_law,
2.17 at all rates, fails. What was predicted first, E2.coupled_first, is judged on the grid it was
written for, rates from 1e-3 on: 1.995 +- 0.018, whose interval holds its limit, 2.

The effect is said to appear where: symbols, the ratio of equivalent to other distances is below 0.5
and 90 % of nearest neighbours are right; twins, the same; projector, the effective rank by squares
is below the dimension of the data plus one; unused, their norm is below a tenth of the others';
images, see above.

Deviations: none of this is in the papers. Data, sizes and grids are ours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import binomtest

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style
from chiaroscuro.labs.cosentino2022.annihilated import by_squares
from chiaroscuro.labs.semantic2025._modular import Learner, contrasted, floor, within
from chiaroscuro.labs.trained import here, linear

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

ENOUGH = "n_runs >= 40 and n_seeds >= 3"
LAW = Stated(
    "E2.forgetting",
    "in each of the three experiments one threshold on lr wd steps - log(start) tells where the "
    "paper's effect appears, better than the decay or the start alone",
    "Secs 5, A.7 to A.11 (ours)",
    "not stated",
    "mean(symbols) >= 0.9 and mean(twins) >= 0.9 and mean(projector) >= 0.9 "
    "and accuracy > by_decay_alone and accuracy > by_start_alone",
    enough=ENOUGH,
)
KEPT = Stated(
    "E2.kept_aside",
    "the mean threshold of the three, carried over, is right for four of five cells of the "
    "experiment kept aside, and for more than the larger class has",
    "rusak2022, App. E (ours)",
    "not stated",
    "share >= 0.8 and share > larger_class",
    enough="n_cells >= 12",
)
IMAGES = Stated(
    "E2.kept_images",
    "carried over to a linear projector that is trained on images, the mean threshold of the three "
    "is right for four of five cells, and for more than the larger class has",
    "cosentino2022, Fig. 1 (ours)",
    "not stated",
    "share >= 0.8 and share > larger_class",
    enough="n_cells >= 30 and decided == 1",
)
FIRST = Stated(
    "E2.coupled_first",
    "decay through the gradient of Adam takes weights without a loss off in about start / lr "
    "steps, whatever the decay is (predicted before any run, of rates from 1e-3 on)",
    "Sec. 5: Adam with weight decay (ours)",
    "not stated",
    "mean(steps_over_first) > 0.5 and mean(steps_over_first) < 2",
    enough="n_runs >= 12 and n_seeds >= 3",
)
COUPLED = Stated(
    "E2.coupled_law",
    "it takes them off in 2.17 start / lr steps, whatever the decay is (derived after a pilot)",
    "Sec. 5: Adam with weight decay (ours)",
    "not stated",
    "mean(steps_over_predicted) > 0.9 and mean(steps_over_predicted) < 1.1 "
    "and spread_over_decays < 0.05",
    enough="n_runs >= 12 and n_seeds >= 3",
)
RATES = Stated(
    "E2.coupled_rates",
    "with coupled decay of 1e-2 symbols merge at the paper's rate, 1e-4, and not at 1e-3; with a "
    "decay of 1e-3 they do not merge at 1e-4 either",
    "Sec. 5: Adam, rate 1e-4, decay 1e-2 (ours)",
    "at 1e-4 and 1e-2 they merge",
    "merged > 0.5 and merged_at_high_rate < 0.5 and merged_at_low_decay < 0.5",
    enough="n_seeds >= 6",  # three of three are surely above 0.29 only, six of six above 0.54
)
CLAIMS = (LAW, KEPT, IMAGES, FIRST, COUPLED, RATES)


@dataclass(frozen=True)
class Settings:
    """Grids of decay and start; all ours.

    Args:
        seeds: of every point of a grid.
        lr_symbols, steps_symbols: of Adam, for symbols; several rates.
        lr, steps: the same, for the three others.
        forgets: values of lr wd steps.
        starts: scales of the start, in units of the usual one.
        finer: steps between two of these for the unused weights, whose cells are counted.
        rates: learning rates of the coupled runs; 1e-4 in Sec. 5.
        decays: of the coupled runs; 1e-2 in Sec. 5.
        lr_steps: learning rate times steps of the coupled symbols; 6.4 in Sec. 5.
        few: at the lowest rate only these decays, its trainings being the longest.
        source, fallback: the images, and what is in their place where they are not there.
        sets: over the preset `cifar`, for images.
        image_forgets, image_starts: the cells of the images.
    """

    seeds: tuple[int, ...] = (5, 6, 7, 8, 9, 10)
    lr_symbols: tuple[float, ...] = (2e-3, 4e-3)
    steps_symbols: int = 2000
    lr: tuple[float, ...] = (4e-3, 1.6e-2)
    steps: int = 600
    forgets: tuple[float, ...] = (0.0, 1.0, 2.5, 6.0)
    starts: tuple[float, ...] = (2.0, 0.6, 0.2, 0.04)
    finer: int = 3
    rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 2e-3, 4e-3)
    decays: tuple[float, ...] = (1e-4, 1e-3, 1e-2)
    lr_steps: float = 6.4
    few: tuple[float, ...] = (1e-3, 1e-2)
    source: str = "cifar10_12k"
    fallback: str = "digits(renderings=(4, 4))"
    sets: tuple[str, ...] = ("epochs=3", "precision=bfloat16")
    image_forgets: tuple[float, ...] = (0.006, 0.5, 1.0, 2.0, 3.0, 4.0)
    image_starts: tuple[float, ...] = (3.0, 1.7, 1.0, 0.5, 0.3, 0.1)


QUICK = Settings(
    seeds=(0,), lr_symbols=(4e-3,), steps_symbols=8, lr=(8e-3,), steps=30, forgets=(0.0, 3.0),
    starts=(1.0, 0.1), finer=1, rates=(1e-2,), lr_steps=0.05,
    source="digits(renderings=(1, 1), test=0.8)",
    sets=("network.encoder=ResNet(depth=9, width=0.125, stem='strided')", "batch=64", "epochs=1"),
    image_forgets=(1.0,), image_starts=(1.0, 0.1),
)  # fmt: skip
LAPTOP = Settings()
PAPER = Settings(
    lr_symbols=(1e-4,), steps_symbols=64_000, lr=(1e-4,), steps=64_000, rates=(1e-4, 3e-4, 1e-3),
    source="cifar10", sets=("epochs=20",),
)  # fmt: skip

BATCH = 32


@dataclass(frozen=True)
class At:
    """A point of the grid: decay, start, seed and learning rate."""

    forget: float
    start: float
    seed: int
    lr: float

    def seen(self, appears: bool, overlap: float, **numbers: float) -> dict[str, Any]:
        """One run: where it is in the diagram, and what was seen."""
        place = {"decay": self.forget, "start": self.start, "seed": self.seed, "lr": self.lr}
        return {**place, "appears": bool(appears), "overlap": overlap, **numbers}


def grid(settings: Settings, rates: Sequence[float]) -> list[At]:
    """Every lr wd steps, start and seed, at every rate."""
    places = itertools.product(settings.forgets, settings.starts, settings.seeds, rates)
    return [At(*place) for place in places]


def fine_grid(settings: Settings, rates: Sequence[float]) -> list[At]:
    """More values between those of `grid`, equally spaced (starts by their logarithms), one seed.

    Of unused weights all seeds say the same, so that only more cells tell more.
    """
    forgets = between(settings.forgets, settings.finer)
    starts = np.exp(between(np.log(settings.starts).tolist(), settings.finer))
    places = itertools.product(forgets.tolist(), starts.tolist(), settings.seeds[:1], rates)
    return [At(*place) for place in places]


def between(values: Sequence[float], finer: int) -> np.ndarray:
    """The values, and `finer` equal steps from each to the next.

    Example:
        >>> between([0, 2, 6], 2).tolist()
        [0.0, 1.0, 2.0, 4.0, 6.0]
    """
    n = len(values)
    return np.interp(np.arange(finer * (n - 1) + 1) / finer, np.arange(n), values)


def overlap(start: torch.Tensor, end: torch.Tensor) -> float:
    """The cosine of all weights at the end with those at the start."""
    return float(torch.cosine_similarity(start.flatten(), end.flatten(), dim=0))


# ---- the experiments ----


def symbols(settings: Settings, lr: float) -> list[dict[str, Any]]:
    """E2, E3: all points of one rate in one stack of learners."""
    points, steps = grid(settings, [lr]), settings.steps_symbols
    learners = [
        Learner(lr=lr, weight_decay=at.forget / (lr * steps), start=at.start) for at in points
    ]
    return merged(points, learners, steps)


def merged(points: list[At], learners: list[Learner], steps: int) -> list[dict[str, Any]]:
    """Whether equivalent symbols came together, and how far the loss came."""
    task, seeds = cs.data.contrastive_mod_add(), [at.seed for at in points]
    tasks = {seed: within(task, seed) for seed in seeds}
    least = {seed: floor(tasks[seed], BATCH, batches=200) for seed in tasks}
    trained = contrasted([tasks[s] for s in seeds], seeds, learners, steps, BATCH, looks=10)
    rows = []
    for at, learner, end in zip(points, learners, trained, strict=True):
        draw = torch.Generator().manual_seed(at.seed)
        first = at.start * torch.randn(len(end["h"]), learner.d, generator=draw)
        ratio, nearest = end["ratio"][-1], end["nearest"][-1]
        chance = math.log(BATCH)
        way = (chance - end["loss"][-1]) / (chance - least[at.seed])
        there = ratio < 0.5 and nearest >= 0.9
        rows.append(
            at.seen(there, overlap(first, torch.tensor(end["h"])), ratio=ratio, nearest=nearest,
                    way=way)
        )  # fmt: skip
    return rows


def coupled_symbols(settings: Settings, lr: float) -> list[dict[str, Any]]:
    """The same with decay through the gradient, across decays, from the usual start."""
    steps = round(settings.lr_steps / lr)
    decays = settings.few if lr == min(settings.rates) else settings.decays
    places = list(itertools.product(decays, settings.seeds))
    learners = [Learner(lr=lr, weight_decay=decay, optimiser="adam") for decay, _ in places]
    points = [At(lr * decay * steps, 1.0, seed, lr) for decay, seed in places]
    rows = merged(points, learners, steps)
    return [{**row, "wd": decay} for row, (decay, _) in zip(rows, places, strict=True)]


def decayed(parameters: list[torch.Tensor], settings: Settings, at: At) -> Any:
    """AdamW whose lr wd steps is that of the point."""
    return torch.optim.AdamW(
        parameters, lr=at.lr, weight_decay=at.forget / (at.lr * settings.steps)
    )


def twins(settings: Settings, at: At) -> dict[str, Any]:
    """Symbols in pairs of one law; rows and contexts free, the population loss of eq. (2).

    A loop of its own: the expected loss over all symbols and contexts has no pairs to draw.
    """
    draw = torch.Generator().manual_seed(at.seed)
    pairs, contexts, d = 12, 40, 8
    law = torch.softmax(1.5 * torch.randn(pairs, contexts, generator=draw), dim=1)
    p = law.repeat(2, 1) / (2 * pairs)
    marginal = p.sum(dim=0).log()
    first = at.start * torch.randn(2 * pairs, d, generator=draw)
    h = first.clone().requires_grad_()
    z = torch.randn(contexts, d, generator=draw).requires_grad_()
    adam = decayed([h, z], settings, at)
    for _ in range(settings.steps):
        S = h @ z.T
        loss = (p * ((S + marginal).logsumexp(dim=1, keepdim=True) - S)).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
    found = cs.diagnostics.semantic_ratio(h.detach(), np.arange(2 * pairs) % pairs)
    there = found.ratio < 0.5 and found.nearest >= 0.9
    return at.seen(there, overlap(first, h.detach()), ratio=found.ratio, nearest=found.nearest)


def views(n: int, d: int, r: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Two noisy views of points in r of d dimensions."""
    x = torch.randn(n, r, generator=draw)
    pad = torch.zeros(n, d - r)
    noise = lambda: 0.3 * torch.randn(n, r, generator=draw)
    return torch.cat([x + noise(), pad], dim=1), torch.cat([x + noise(), pad], dim=1)


def fitted(W: Any, objective: Any, pair: Any, settings: Settings, at: At) -> torch.Tensor:
    """W after its steps on pairs of views, by the decay that forgets so much."""
    layer, steps = linear(W), settings.steps
    cs.engine.fit(
        layer, objective, (pair() for _ in range(steps)), decayed([layer.weight], settings, at),
        steps_per_epoch=steps, options=cs.engine.FitOptions(device="cpu"),
    )  # fmt: skip
    return layer.weight.detach()


def projector(settings: Settings, at: At) -> dict[str, Any]:
    """A linear W on data that fill r of its d inputs: the rest is its start."""
    draw = torch.Generator().manual_seed(at.seed)
    d, r, out = 16, 4, 12
    first = at.start * torch.randn(out, d, generator=draw) / d**0.5
    objective = cs.InfoNCE(cs.Dot(tau=1.0))
    W = fitted(first, objective, lambda: views(48, d, r, draw), settings, at)
    s = torch.linalg.svdvals(W).double().square()
    rank = float(torch.exp(torch.special.entr(s / s.sum()).sum()))
    return at.seen(rank < r + 1, overlap(first, W), rank=rank)


def unused(settings: Settings, at: At) -> dict[str, Any]:
    """A linear layer of which the loss sees the first outputs: what becomes of the others."""
    draw = torch.Generator().manual_seed(at.seed)
    d, out, used = 8, 16, 4
    first = at.start * torch.randn(out, d, generator=draw) / d**0.5
    objective = cs.OnDims(cs.InfoNCE(cs.Dot(tau=1.0)), 0, used)
    W = fitted(first, objective, lambda: views(48, d, d, draw), settings, at)
    norms = W.norm(dim=1)
    share = float(norms[used:].mean() / norms[:used].mean())
    return at.seen(share < 0.1, overlap(first, W), share=share)


def images(settings: Settings, forget: float, start: float, seed: int) -> dict[str, Any]:
    """A linear projector behind a small ResNet: what became of the spectrum of its start."""
    asked = cs.engine.read_settings(
        "cifar",
        [
            "views.first=SimCLR(size=24, strength=0.5)",
            *settings.sets,
            f"data.source={settings.source if here(settings.source) else settings.fallback}",
            "schedule.name=constant",
            "schedule.warmup=0",
            f"seed={seed}",
        ],
    )
    n = len(cs.data.open_data(asked.data.source).part("train"))
    steps, lr = asked.epochs * (n // asked.batch), asked.optimiser.lr
    d: Any = cs.engine.build(asked.network, seed).encoders[0].d
    bound = torch.rand(3 * d // 4, d, generator=torch.Generator().manual_seed(seed))
    first = start * (2 * bound - 1) / d**0.5  # as torch.nn.Linear starts
    layer = linear(first)

    def adam(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        others = [p for p in parameters if p is not layer.weight]
        groups = [
            {"params": [layer.weight], "weight_decay": forget / (lr * steps)},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr)

    run = cs.train(asked, projector=layer, optimiser=adam)
    taken = run.history().records[-1]
    if taken["step"] != steps:
        raise ValueError(f"the decay is for {steps} steps; {taken['step']} were taken")
    W = layer.weight.detach()
    before, after = (by_squares(torch.linalg.svdvals(x).tolist()) for x in (first, W))
    at, kept = At(forget, start, seed, lr), after / before
    return at.seen(kept < 0.8, overlap(first, W), rank=after, kept=kept, loss=taken["mean_loss"])


def coupled(rate: float, decay: float, start: float, seed: int) -> dict[str, float]:
    """Steps until Adam, decay in the gradient, has a tenth left of weights without a loss.

    A loop of its own: what the optimiser does without any loss is the subject.
    """
    draw = torch.Generator().manual_seed(seed)
    w = (start * torch.randn(1000, generator=draw)).requires_grad_()
    adam = torch.optim.Adam([w], lr=rate, weight_decay=decay)
    first, most = float(w.detach().abs().mean()), int(20 * start / rate)
    steps = 0
    while steps < most and float(w.detach().abs().mean()) >= 0.1 * first:
        w.grad = torch.zeros_like(w)
        adam.step()
        steps += 1
    predicted = adam_alone() * start / rate
    place = {"rate": rate, "decay": decay, "start": start, "seed": seed}
    return {**place, "steps": steps, "predicted": predicted}


@cache
def adam_alone(left: float = 0.1) -> float:
    """lr steps / start until Adam, decay in the gradient, has so much left of normal weights.

    For fewer steps than the second moment remembers, 1 / (1 - 0.999).

    With g = wd w, m = g and v the mean of g^2 so far, wd cancels; in units of the start, and time
    in units of start / lr,

        w' = -w / sqrt((1/t) int_0^t w^2),   w(0) = 1,

    and a weight of another size takes as much longer as it is larger.

    Example:
        >>> round(adam_alone(), 2)
        2.17
    """
    dt = 1e-3
    w, squares = [1.0], 0.0
    for i in range(20_000):
        squares += w[-1] ** 2 * dt
        w.append(w[-1] * (1 - dt * math.sqrt((i + 1) * dt / squares)))
    time = dt * np.arange(len(w))
    size = ndtri(0.5 + (np.arange(2000) + 0.5) / 4000)  # of half-normal weights
    kept = lambda t: float((size * np.interp(t / size, time, w)).sum() / size.sum())
    return float(brentq(lambda t: kept(t) - left, 0.0, 10.0))


EXPERIMENTS = {"twins": twins, "projector": projector, "unused": unused}


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """All points of all experiments, and the coupled runs; images last."""
    result: dict[str, Any] = {"n_seeds": len(settings.seeds), "symbols": []}
    for lr in settings.lr_symbols:
        result["symbols"] += keep(f"symbols {lr}", lambda lr=lr: symbols(settings, lr))
    for name, one in EXPERIMENTS.items():
        points = (fine_grid if name == "unused" else grid)(settings, settings.lr)
        result[name] = keep(name, lambda one=one, all=points: [one(settings, at) for at in all])
    result["coupled"] = keep(
        "coupled",
        lambda: [
            coupled(rate, decay, start, seed)
            for rate in settings.rates
            for decay in settings.decays
            for start in (0.3, 1.0)
            for seed in settings.seeds
        ],
    )
    result["coupled symbols"] = []
    for lr in settings.rates:
        piece = lambda lr=lr: coupled_symbols(settings, lr)
        result["coupled symbols"] += keep(f"coupled symbols {lr}", piece)
    cells = itertools.product(settings.image_forgets, settings.image_starts)
    result["images"] = [
        keep(f"images {forget} {start}", lambda at=(forget, start, seed): images(settings, *at))
        for seed, (forget, start) in enumerate(cells)
    ]
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


NAMES = ("symbols", "twins", "projector")


def by_seed(rows: list[dict[str, Any]], cut: float) -> list[float]:
    """For each seed, the share of its runs that a threshold on what is forgotten gets right."""
    right: dict[int, list[bool]] = {}
    for row in rows:
        right.setdefault(row["seed"], []).append((forgotten(row) > cut) == row["appears"])
    return [float(np.mean(one)) for one in right.values()]


def by_cell(rows: list[dict[str, Any]], cut: float) -> dict[str, float]:
    """The share of cells of decay and start that a threshold on what is forgotten gets right.

    The effect appears in a cell if it does in most of its runs. `low` and `high` are the binomial
    interval of the share, `decided` whether it leaves 0.8 out, `agreeing` the share of cells whose
    runs all say the same.
    """
    places: dict[tuple[float, float], list[dict[str, Any]]] = {}
    for row in rows:
        places.setdefault((row["decay"], row["start"]), []).append(row)
    shares = [float(np.mean([row["appears"] for row in own])) for own in places.values()]
    right = sum(
        (forgotten(own[0]) > cut) == (share > 0.5)
        for own, share in zip(places.values(), shares, strict=True)
    )
    n, appears = len(places), sum(share > 0.5 for share in shares)
    over = binomtest(right, n).proportion_ci(0.95, method="exact")
    return {
        "share": right / n,
        "low": float(over.low),
        "high": float(over.high),
        "right": right,
        "n_cells": n,
        "decided": int(over.low >= 0.8 or over.high < 0.8),
        "larger_class": max(appears, n - appears) / n,
        "agreeing": float(np.mean([share in (0, 1) for share in shares])),
        "threshold": cut,
        "own_threshold": divided(rows, forgotten)[0],
        "own_accuracy": divided(rows, forgotten)[1],
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """One threshold each, the threshold carried over, and coupled decay."""
    split = {name: divided(result[name], forgotten) for name in NAMES}
    cut = float(np.mean([split[name][0] for name in NAMES]))
    gone, merged = result["coupled"], _merged(result)
    alone = lambda key, sign: [
        divided(result[name], lambda row: sign * row[key])[1] for name in NAMES
    ]
    seeds = sorted({row["seed"] for row in gone})
    over = lambda of, least=0.0: [
        float(np.mean([row["steps"] / of(row) for row in gone
                       if row["seed"] == seed and row["rate"] >= least]))
        for seed in seeds
    ]  # fmt: skip
    first = lambda row: row["start"] / row["rate"]
    steps: dict[tuple[float, float, int], list[float]] = {}
    for row in gone:
        steps.setdefault((row["rate"], row["start"], row["seed"]), []).append(row["steps"])
    spread = [max(x) / min(x) - 1 for x in steps.values()]
    all_runs = {"n_runs": len(gone), "n_seeds": len(seeds)}
    return [
        LAW.judge(
            **{name: by_seed(result[name], split[name][0]) for name in NAMES},
            accuracy=[split[name][1] for name in NAMES],
            by_decay_alone=alone("decay", 1),
            by_start_alone=alone("start", -1),
            by_overlap=alone("overlap", -1),
            thresholds=[split[name][0] for name in NAMES],
            share_that_appears=[
                float(np.mean([row["appears"] for row in result[name]])) for name in NAMES
            ],
            learnt_of_symbols=float(np.mean([row["way"] > 0.5 for row in result["symbols"]])),
            n_runs=min(len(result[name]) for name in NAMES),
            n_seeds=result["n_seeds"],
        ),
        KEPT.judge(**by_cell(result["unused"], cut)),
        IMAGES.judge(
            **by_cell(result["images"], cut),
            by_overlap=divided(result["images"], lambda row: -row["overlap"])[1],
            in_units_of_projector=by_cell(result["images"], cut - math.log(3) / 2)["right"],
        ),
        FIRST.judge(
            steps_over_first=over(first, 1e-3),
            n_runs=sum(row["rate"] >= 1e-3 for row in gone),
            n_seeds=len(seeds),
            by_rate={
                f"{rate:g}": float(
                    np.mean([x["steps"] / first(x) for x in gone if x["rate"] == rate])
                )
                for rate in sorted({row["rate"] for row in gone})
            },
        ),
        COUPLED.judge(
            steps_over_predicted=over(lambda row: row["predicted"]),
            spread_over_decays=max(spread),
            **all_runs,
        ),
        RATES.judge(
            merged=merged.get((1e-4, 1e-2), math.nan),
            merged_at_high_rate=merged.get((1e-3, 1e-2), math.nan),
            merged_at_low_decay=merged.get((1e-4, 1e-3), math.nan),
            n_seeds=len({row["seed"] for row in result["coupled symbols"]}),
            every_cell={f"lr {lr:g}, wd {wd:g}": share for (lr, wd), share in merged.items()},
            learnt={f"lr {lr:g}, wd {wd:g}": way for (lr, wd), way in _ways(result).items()},
        ),
    ]


def _merged(result: dict[str, Any]) -> dict[tuple[float, float], float]:
    """The share of coupled runs in which symbols merged, by rate and decay."""
    return _means(result, lambda row: row["appears"])


def _ways(result: dict[str, Any]) -> dict[tuple[float, float], float]:
    """How far the loss of coupled runs came from chance to its floor, by rate and decay."""
    return _means(result, lambda row: row["way"])


def _means(result: dict[str, Any], number: Any) -> dict[tuple[float, float], float]:
    seen: dict[tuple[float, float], list[float]] = {}
    for row in result["coupled symbols"]:
        seen.setdefault((row["lr"], row["wd"]), []).append(number(row))
    return {place: float(np.mean(one)) for place, one in seen.items()}


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """The phase diagrams: decay against start, where the effect appears; and coupled decay."""
    canvas, axes = style.canvas(2, 4, width=2.9, height=2.7)
    titles = {
        "symbols": "equivalent symbols merge (E2, E3)",
        "twins": "artificial synonyms merge (E4)",
        "projector": "rank of $W$ falls (G2)",
        "unused": "aside: unused $W$ vanishes (C8)",
        "images": "aside: rank of $W$ falls, CIFAR-10",
    }
    cut = float(np.mean([divided(result[name], forgotten)[0] for name in NAMES]))
    for axis, (name, title) in zip(axes.flat, titles.items(), strict=False):
        rows = result[name]
        places: dict[tuple[float, float], list[bool]] = {}
        for row in rows:
            places.setdefault((row["decay"], row["start"]), []).append(row["appears"])
        _dots(axis, {place: float(np.mean(one)) for place, one in places.items()})
        threshold = divided(rows, forgotten)[0] if name in NAMES else cut
        x = np.linspace(-0.4, max(row["decay"] for row in rows) + 0.4, 50)
        axis.plot(x, np.exp(x - threshold), color=style.COLOURS[1], linewidth=1)
        starts = [row["start"] for row in rows]
        axis.set_yscale("log")
        axis.set_xlim(x[0], x[-1])
        axis.set_ylim(min(starts) / 2, 2 * max(starts))
        style.label(axis, r"$\eta \lambda T$", "start $s$", title)
    ranks, seen, coupled_decay = axes.flat[5:]
    kept = [row["kept"] for row in result["images"]]
    ranks.scatter([forgotten(row) for row in result["images"]], kept, s=14, linewidths=0)
    ranks.axhline(0.8, color=style.GREY, linewidth=0.8)
    ranks.axvline(cut, color=style.COLOURS[1], linewidth=1)
    ranks.set_ylim(0, 1.1)
    style.label(
        ranks, r"$\eta \lambda T - \log s$", "rank of $W$ over its start's", "CIFAR-10, by cell"
    )
    for i, name in enumerate(titles):
        rows = result[name]
        for there, shift in ((False, -0.13), (True, 0.13)):
            cosines = [row["overlap"] for row in rows if row["appears"] == there]
            colour = style.COLOURS[0]
            seen.scatter(
                cosines, [i + shift] * len(cosines), s=9, alpha=0.4, linewidths=0.5,
                edgecolors=colour, color=colour if there else "none",
            )  # fmt: skip
    seen.set_yticks(range(len(titles)), list(titles))
    seen.invert_yaxis()
    style.label(seen, r"overlap $\cos(W_0, W_T)$", "", "filled: the effect appears")
    _dots(coupled_decay, _merged(result))
    coupled_decay.set_xscale("log")
    rates = sorted({rate for rate, _ in _merged(result)})
    coupled_decay.set_xticks(rates, [f"{1000 * rate:g}" for rate in rates])
    coupled_decay.minorticks_off()
    coupled_decay.set_yscale("log")
    coupled_decay.margins(0.25)
    style.label(
        coupled_decay, r"rate $10^3 \eta$", r"decay $\lambda$", "coupled decay: symbols merge"
    )
    return canvas


def _dots(axis: Any, shares: dict[tuple[float, float], float]) -> None:
    """A dot for each place, the fuller the more often the effect appears there."""
    for (x, y), share in sorted(shares.items()):
        axis.scatter(
            [x], [y], s=55, color=style.COLOURS[0], alpha=0.08 + 0.92 * share, linewidths=0
        )
        axis.scatter([x], [y], s=55, color="none", edgecolors=style.COLOURS[0], linewidths=0.8)
