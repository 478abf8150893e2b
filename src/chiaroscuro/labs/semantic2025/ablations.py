"""Figs 4 to 8: larger dimension, no decay, small start, both, misaligned contexts.

Paper: semantic2025, App. A.6 to A.10, Figs 4 to 8. The experiment of Fig. 2 with one thing changed
at a time, and ModAdd afterwards.

Judged against the unchanged learner of the same seeds: ratio of distances, neighbours and loss as
in E2, and the gain of ModAdd (area under the curve over that of fresh rows, as in the paper; over
the same rows dealt to the wrong symbols, which leaves out what small rows are worth, beside it).
The decay is the one that acts (decoupled, lr wd steps = 3.2; see E2); the scales `long` and `paper`
have the paper's own, coupled and at its rate. App. A.10 misaligns one symbol, "a particular" one;
all of them stand beside it. "Takes longer" is judged by the mean of the ratio over the training.

The two things the paper leaves open. Bands: of the distances between other symbols, the least
number of groups that explains 97 % of their variance (numbers spread evenly need six), and the
share that the difference u - v mod 8 explains, the only thing the task gives them to depend on.
Larger distances with decay than without, both from a small start: compared directly, with the decay
that acts and with the printed one.

Results. With the decay that acts (`laptop`, five seeds) a small start with decay brings equivalent
symbols closest of all (ratio 0.08, unchanged 0.41), without decay half way (0.54), and 128
dimensions cost some of it (0.67). With the paper's own decay, coupled, at its own rate (`long`,
three seeds) rows of 128 dimensions (ratio 0.45, all neighbours right) and data with one misaligned
symbol (0.39) are on the average as in Figs 4 and 8, without decay nothing comes together (Fig. 5),
and from a small start without decay symbols come half way only, 0.55 (E3.low_start fails). But
coupled decay can take everything. From the usual start nothing is learnt on one seed of three here
(and on one of six in the lab `forgetting`), which leaves E3.dimension and E3.misaligned open. From
a small start with decay all rows shrink to zero and the loss stays at chance on every seed: E3.both
and E3.larger fail there because nothing is learnt, and E3.bands says nothing. Why it is otherwise
in the paper is open; its encoder may differ (blocks of torch normalise after each sum by default
and have dropout, ours normalise before and have none), which was not tried.

Deviations: those of E2; "slightly low" of Fig. 7 is the 0.02 of Fig. 6. The favoured context of a
misaligned symbol is one of the sums for training. At `long`, ModAdd takes the paper's 64,000 steps
in 6,400 at ten times the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style
from chiaroscuro.labs.semantic2025._modular import Learner, N, contrasted, downstream, within

__all__ = ["CLAIMS", "LAPTOP", "LONG", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

ENOUGH = "lr_steps >= 6 and n_seeds >= 3"

DIMENSION = Stated(
    "E3.dimension",
    "with d = 128 equivalent symbols still come together; downstream rows matter less than at 8",
    "App. A.6.1, Fig. 4",
    "close; both models perform equally well",
    "mean(ratio) < 0.5 and mean(nearest) > 0.9 and mean(gain) < mean(gain_unchanged)",
    enough=ENOUGH,
)
NO_DECAY = Stated(
    "E3.no_decay",
    "without weight decay equivalent symbols stay apart, with a trend towards each other",
    "App. A.7, Fig. 5",
    "fails to encode; a trend; marginally better downstream",
    "mean(ratio) > 0.5 and mean(ratio) < mean(ratio_at_start) "
    "and mean(gain) < mean(gain_unchanged)",
    enough=ENOUGH,
)
LOW_START = Stated(
    "E3.low_start",
    "from a small start equivalent symbols come together without weight decay as well",
    "App. A.8, Fig. 6",
    "close; better downstream than fresh rows",
    "mean(ratio) < 0.5 and mean(nearest) > 0.9 and mean(gain) > 0",
    enough=ENOUGH,
)
BOTH = Stated(
    "E3.both",
    "a small start with decay brings them together as well",
    "App. A.9, Fig. 7",
    "close; better downstream than fresh rows",
    "mean(ratio) < 0.5 and mean(nearest) > 0.9 and mean(gain) > 0",
    enough=ENOUGH,
)
LARGER = Stated(
    "E3.larger",
    "from a small start, other symbols end further apart with decay than without",
    "App. A.9",
    "larger, unexplained",
    "mean(other_with_decay) > mean(other_without)",
    enough=ENOUGH,
)
BANDS = Stated(
    "E3.bands",
    "from a small start with decay, distances of other symbols fall into three bands",
    "App. A.9, Fig. 7a",
    "three bands, unexplained",
    "mean(n_bands) <= 3",
    enough=ENOUGH,
)
MISALIGNED = Stated(
    "E3.misaligned",
    "one context of probability 0.9 for each symbol: they move together less, and help less",
    "App. A.10, of all symbols (ours)",
    "not tried; of one symbol: close, but later; better than fresh rows, less than aligned",
    "mean(ratio) < mean(ratio_at_start) and mean(ratio) > mean(ratio_unchanged) "
    "and mean(gain) > 0 and mean(gain) < mean(gain_unchanged)",
    enough=ENOUGH,
)
ONE_SYMBOL = Stated(
    "E3.one_symbol",
    "with one symbol misaligned, as App. A.10 has it, equivalent symbols come close, and help more "
    "than fresh rows",
    "App. A.10, Fig. 8",
    "close; better than fresh rows",
    "mean(ratio) < 0.5 and mean(nearest) > 0.8 and mean(gain) > 0",
    enough=ENOUGH,
)
ONE_LATER = Stated(
    "E3.one_later",
    "with one symbol misaligned they come together later than aligned, and help less",
    "App. A.10, Fig. 8",
    "takes longer; less effective",
    "mean(course) > mean(course_unchanged) and mean(gain) < mean(gain_unchanged)",
    enough=ENOUGH,
)
CLAIMS = (DIMENSION, NO_DECAY, LOW_START, BOTH, LARGER, BANDS, MISALIGNED, ONE_SYMBOL, ONE_LATER)


@dataclass(frozen=True)
class Settings:
    """One thing changed at a time.

    Args:
        seeds: a split, a start and draws each.
        steps, lr, batch, effective, weight_decay, steps_down, looks: as in E2 (Sec. 5).
        lr_down: of ModAdd; 1e-4 in Sec. 5, with ten times the steps.
        d_large: 128 in App. A.6.1.
        low: deviation of the symbols at the start; 0.02 in App. A.8.
        misalignment: 0.9 in App. A.10.
        coupled: decay through the gradient, as `torch.optim.Adam` has it, at `weight_decay`; it
            bears the paper's rate only (see E2).
    """

    seeds: tuple[int, ...] = (5, 6, 7, 8, 9)
    steps: int = 6400
    lr: float = 1e-3
    batch: int = 32
    effective: float = 0.5
    weight_decay: float = 1e-2
    steps_down: int = 3200
    lr_down: float = 1e-3
    looks: int = 40
    d_large: int = 128
    low: float = 0.02
    misalignment: float = 0.9
    coupled: bool = False

    @property
    def decay(self) -> dict[str, Any]:
        """The decay of the learners, as arguments of `Learner`."""
        if self.coupled:
            return {"optimiser": "adam", "weight_decay": self.weight_decay}
        return {"weight_decay": self.effective}


QUICK = Settings(seeds=(0,), steps=20, steps_down=10, looks=2, d_large=16)
LAPTOP = Settings()
LONG = Settings(seeds=(5, 6, 7), steps=64_000, lr=1e-4, steps_down=6400, looks=100, coupled=True)
PAPER = Settings(
    seeds=(0,), steps=64_000, lr=1e-4, steps_down=64_000, lr_down=1e-4, looks=200, coupled=True
)

UNCHANGED, PRINTED = "unchanged", "printed decay, low start"


def decayed(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """The learners with decay on aligned contexts: unchanged, and from a small start."""
    usual = Learner(lr=settings.lr, **settings.decay)
    both = [usual, replace(usual, start=settings.low)]
    return several(settings, dict(zip((UNCHANGED, "both"), both, strict=True)), aligned(settings))


def undecayed(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """Without decay: from the usual start and from a small one; and with the decay that is printed.

    The last is decoupled, and asked only where the others are not of the printed decay.
    """
    usual = Learner(lr=settings.lr, weight_decay=0.0)
    small = replace(usual, start=settings.low)
    learners = {"no decay": usual, "low start": small}
    if not settings.coupled:
        learners[PRINTED] = replace(small, weight_decay=settings.weight_decay)
    return several(settings, learners, aligned(settings))


def strange(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """The unchanged learner on misaligned contexts: of all symbols, and of one."""
    n, usual = len(settings.seeds), Learner(lr=settings.lr, **settings.decay)
    tasks = [
        [misaligned(task, of(seed), settings.misalignment, seed)
         for task, seed in zip(aligned(settings), settings.seeds, strict=True)]
        for of in (lambda seed: range(N), lambda seed: [seed % N])
    ]  # fmt: skip
    trained = contrasted(
        [*tasks[0], *tasks[1]], [*settings.seeds] * 2, usual, settings.steps, settings.batch,
        settings.looks,
    )  # fmt: skip
    return {"misaligned": trained[:n], "one symbol": trained[n:]}


def aligned(settings: Settings) -> list[cs.data.SymbolTask]:
    """CModAdd on the training sums of each seed."""
    return [within(cs.data.contrastive_mod_add(), seed) for seed in settings.seeds]


def several(
    settings: Settings, learners: dict[str, Learner], tasks: list[cs.data.SymbolTask]
) -> dict[str, list[dict[str, Any]]]:
    """Learners that share a learning rate, each over the seeds."""
    n = len(settings.seeds)
    trained = contrasted(
        tasks * len(learners), [*settings.seeds] * len(learners),
        [one for one in learners.values() for _ in range(n)],
        settings.steps, settings.batch, settings.looks,
    )  # fmt: skip
    return {name: trained[i * n : (i + 1) * n] for i, name in enumerate(learners)}


def misaligned(
    task: cs.data.SymbolTask, symbols: Iterable[int], share: float, seed: int
) -> cs.data.SymbolTask:
    """The task with one favourite context for each of some symbols, which stay as frequent.

    The favourite has that share of the symbol's probability; its other contexts divide the rest
    evenly [App. A.10].
    """
    rng = np.random.default_rng([seed, 8])
    law = task.pairs().copy()
    for symbol in symbols:
        right = np.flatnonzero(law[:, symbol])
        total = law[right, symbol].sum()
        law[right, symbol] = total * (1 - share) / (len(right) - 1)
        law[rng.choice(right), symbol] = total * share
    return cs.data.SymbolTask(law, task.contexts, name="misaligned")


def after(settings: Settings, learners: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """ModAdd from the rows of these learners, and from fresh rows of their dimension."""
    d = len(learners[names[0]][0]["h"][0])
    tables = {name: [record["h"] for record in learners[name]] for name in names}
    tables[f"fresh {d}"] = [
        np.random.default_rng([seed, 5]).normal(size=(N, d)).tolist() for seed in settings.seeds
    ]
    for name in names:  # the same sizes and distances, no meaning
        tables[f"{name}, shuffled"] = [
            [h[i] for i in np.random.default_rng([seed, 6]).permutation(N)]
            for seed, h in zip(settings.seeds, tables[name], strict=True)
        ]
    accuracies = downstream(
        [table for name in tables for table in tables[name]],
        list(settings.seeds) * len(tables),
        Learner(lr=settings.lr_down, weight_decay=settings.weight_decay),
        settings.steps_down,
        settings.batch,
        settings.looks,
    )
    n = len(settings.seeds)
    return {name: accuracies[i * n : (i + 1) * n] for i, name in enumerate(tables)}


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Every change over the seeds, then ModAdd."""
    learners: dict[str, Any] = {
        **keep("with decay", lambda: decayed(settings)),
        **keep("without decay", lambda: undecayed(settings)),
        **keep("misaligned", lambda: strange(settings)),
    }
    small = [name for name in learners if name != PRINTED]
    large = {"dimension": Learner(d=settings.d_large, lr=settings.lr, **settings.decay)}
    learners |= keep("dimension", lambda: several(settings, large, aligned(settings)))
    return {
        "lr_steps": settings.lr * settings.steps,
        "n_seeds": len(settings.seeds),
        "d_large": settings.d_large,
        "learners": learners,
        "downstream": {
            **keep("downstream", lambda: after(settings, learners, small)),
            **keep("downstream large", lambda: after(settings, learners, ["dimension"])),
        },
    }


def between(h: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Distances of other symbols, and the difference u - v mod 8 of each (1 to 4)."""
    x = np.asarray(h)
    i, j = np.triu_indices(N, 1)
    turn = (i - j) % 8
    turn = np.minimum(turn, 8 - turn)
    t = np.linalg.norm(x[i] - x[j], axis=1)
    return t[turn > 0], turn[turn > 0]


def bands(t: np.ndarray, share: float = 0.97) -> int:
    """The least number of groups of a sorted line that explain a share of the variance."""
    t = np.sort(t)
    n = len(t)
    sums, squares = np.r_[0, np.cumsum(t)], np.r_[0, np.cumsum(t**2)]
    # cost[i, j]: squares around the mean of t[i:j]; best[j]: of t[:j] in so many groups
    i, j = np.triu_indices(n + 1, 1)
    cost = np.full((n + 1, n + 1), np.inf)
    cost[i, j] = squares[j] - squares[i] - (sums[j] - sums[i]) ** 2 / (j - i)
    best, groups = cost[0].copy(), 1
    while best[n] > (1 - share) * cost[0, n] and groups < n:
        best = np.min(best[:, None] + cost, axis=0, initial=np.inf)
        groups += 1
    return groups


def explained(t: np.ndarray, turn: np.ndarray) -> float:
    """The share of the variance of distances that the difference mod 8 explains."""
    within_groups = sum(((t[turn == k] - t[turn == k].mean()) ** 2).sum() for k in range(1, 5))
    whole = ((t - t.mean()) ** 2).sum()
    return float(1 - within_groups / whole) if whole else math.nan


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Each change against the unchanged learner."""
    about = {"lr_steps": result["lr_steps"], "n_seeds": result["n_seeds"]}
    learners, after_rows = result["learners"], result["downstream"]

    def end(name: str, key: str, at: int = -1) -> list[float]:
        return [row[key][at] for row in learners[name]]

    def gain(name: str, base: str = "fresh 8") -> list[float]:
        rows = zip(after_rows[name], after_rows[base], strict=True)
        return [a["area"] - b["area"] for a, b in rows]

    def three(name: str, base: str = "fresh 8") -> dict[str, Any]:
        return {
            "ratio": end(name, "ratio"),
            "nearest": end(name, "nearest"),
            "loss": end(name, "loss"),
            "course": [float(np.mean(row["ratio"])) for row in learners[name]],
            "gain": gain(name, base),
            "gain_over_shuffled": gain(name, f"{name}, shuffled"),
            **about,
        }

    at_start = {"ratio_at_start": end("no decay", "ratio", 0)}
    unchanged = {
        "gain_unchanged": gain(UNCHANGED),
        "ratio_unchanged": end(UNCHANGED, "ratio"),
        "course_unchanged": three(UNCHANGED)["course"],
    }
    printed = {"other_with_printed_decay": end(PRINTED, "other")} if PRINTED in learners else {}
    lines = [between(row["h"]) for row in learners["both"]]
    return [
        DIMENSION.judge(**three("dimension", f"fresh {result['d_large']}"), **unchanged),
        NO_DECAY.judge(**three("no decay"), **unchanged, **at_start),
        LOW_START.judge(**three("low start"), **unchanged),
        BOTH.judge(**three("both"), **unchanged),
        LARGER.judge(
            other_with_decay=end("both", "other"),
            other_without=end("low start", "other"),
            **printed,
            **about,
        ),
        BANDS.judge(
            n_bands=[bands(t) for t, _ in lines],
            explained_by_difference=[explained(*line) for line in lines],
            **about,
        ),
        MISALIGNED.judge(**three("misaligned"), **unchanged, **at_start),
        ONE_SYMBOL.judge(**three("one symbol"), **unchanged, **at_start),
        ONE_LATER.judge(**three("one symbol"), **unchanged, **at_start),
    ]


SHOWN = {
    "dimension": "Fig. 4: $d = 128$",
    "no decay": "Fig. 5: no decay",
    "low start": "Fig. 6: small start, no decay",
    "both": "Fig. 7: small start and decay",
    "one symbol": "Fig. 8: one misaligned",
}


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Distances, a panel for each figure of the paper, and what the rows are worth in ModAdd.

    Dots at the end: every pair of symbols of the first seed, where Fig. 7 has its bands.
    """
    canvas, axes = style.canvas(2, 3, width=3.1, height=2.6)
    learners, after_rows = result["learners"], result["downstream"]
    kinds = (("equivalent", style.COLOURS[3]), ("other", style.COLOURS[4]))
    for (name, title), axis in zip(SHOWN.items(), axes.flat, strict=False):
        first = learners[name][0]
        last = first["step"][-1]
        for row in learners[name]:
            for key, colour in kinds:
                axis.plot(row["step"], row[key], color=colour, linewidth=1)
        x, (u, v) = np.asarray(first["h"]), np.triu_indices(N, 1)
        t, same = np.linalg.norm(x[u] - x[v], axis=1), (u - v) % 8 == 0
        for which, colour in ((~same, style.COLOURS[4]), (same, style.COLOURS[3])):
            end = np.full(int(which.sum()), 1.06 * last)
            axis.scatter(end, t[which], s=3, color=colour, linewidths=0, alpha=0.6)
        for key, colour in kinds:
            height = np.mean([row[key][-1] for row in learners[name]])
            axis.annotate(key, (1.1 * last, height), color=colour, fontsize=8, va="center")
        axis.set_xlim(0, 1.5 * last)
        axis.set_xticks(np.linspace(0, last, 3).round())
        axis.set_ylim(bottom=0)
        style.label(axis, "step", r"mean $\|h_u - h_v\|$", title)
    worth = axes.flat[-1]
    names = (UNCHANGED, *SHOWN, "misaligned")
    titles = {UNCHANGED: "unchanged", **SHOWN, "misaligned": "all misaligned"}
    for i, name in enumerate(names):
        base = after_rows[f"fresh {result['d_large'] if name == 'dimension' else 8}"]
        gains = [a["area"] - b["area"] for a, b in zip(after_rows[name], base, strict=True)]
        spread = cs.labs.interval(gains)
        colour = style.COLOURS[0]
        worth.scatter(gains, [i] * len(gains), s=8, color=colour, alpha=0.5, linewidths=0)
        if np.isfinite(spread.error):
            worth.plot([spread.low, spread.high], [i, i], color=colour, linewidth=1)
        worth.plot([spread.mean] * 2, [i - 0.25, i + 0.25], color=colour, linewidth=2)
    worth.axvline(0, color=style.GREY, linewidth=0.8)
    worth.set_yticks(range(len(names)), [titles[name].split(": ")[-1] for name in names])
    worth.invert_yaxis()
    style.label(worth, "gain in area over fresh rows", "", "worth in ModAdd, 95 %")
    return canvas
