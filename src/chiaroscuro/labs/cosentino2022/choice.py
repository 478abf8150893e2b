"""Beyond the paper: the strength of augmentation, chosen without labels.

Paper: cosentino2022, Fig. 1 and Table 2: how strong an augmentation should be is found there by
accuracy, with labels. Its measures of encoder and projector need none: can they choose?

Several data sets, each trained at several strengths. For every training the measures that need no
label are taken, on its own views and on views of the large policy, the same for all. A rule is
"take the strength at which this measure is largest" (or smallest), the measure's mean over seeds
being taken. On the data sets for proposing, labels decide which rule is best: the one that recovers
most of what the best strength gains over the default, 0.5. That one rule then chooses on the data
sets held out; their labels only say how good the choice was.

Judged on the held-out sets: the share of the gain of the best strength over the default that the
choice recovers, all sets together, by accuracy of 20 neighbours; at least 0.8 is asked. The
shortfall in accuracy of each set is given beside it. The best strength is the best by the same test
rows, so that 1 cannot be exceeded. Where the default is the best on every set there is no gain to
recover, and nothing is judged. A control: one strength for all sets, taken on the same half.

Results. The rule taken, the largest effective rank of the encoder on its own views, recovers 95 %
on the held-out sets, more than the 80 % asked for. But it chooses nothing: it takes the smallest
strength, 0.05, on all eight sets, and one constant strength taken on the same half recovers exactly
as much. So G2.choice fails, which after a first run was made to ask for more than a constant
recovers, and so does G2.constant, added after it. On digits and Omniglot, where crops and colours
destroy what is asked, the smallest is right and the gains are large (up to 28 points), so that they
make up the sum; on both CIFAR sets it is the worst of the four (2.9 points below the best on
CIFAR-100). So the strength is not chosen without labels by these measures: weak views leave the
effective rank high whether they help or not, and none of the 80 rules takes the small strength on
digits and Omniglot and another on CIFAR. Chosen by each set's gains over its own largest, instead
of by raw ones, rule and constant are the same.

Claim ids: G2 is the relation between strength, rank and accuracy of Fig. 1.

Deviations: nothing to deviate from. Data: wandering digits with four sets of nuisances, two halves
of Omniglot by alphabet, CIFAR-10 and CIFAR-100 subsets; one of each kind, and two of digits, on
either side. Without CHIARO_DATA only the digits are there, and nothing is judged. The network is
that of the lab `strength`, the training is not: AdamW at 3e-3 with decay 1e-4, which hardly moves
W, so that rules that read W may be weaker here than with LARS. Every training sees the same number
of pictures.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style
from chiaroscuro.labs.trained import here, scored, trained

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

CHOICE = Stated(
    "G2.choice",
    "a measure without labels, proposed on half of the data sets, chooses strengths on the others "
    "that recover at least 0.8 of what the best strength gains over the default, and more than one "
    "constant strength does",
    "Fig. 1, Table 2, turned into a rule (ours)",
    "not tried there",
    "recovered >= 0.8 and recovered > constant",
    enough="n_held_out >= 4 and n_seeds >= 2 and possible > 0",
)
SHORTFALL = Stated(
    "G2.shortfall",
    "on no held-out set does the chosen strength fall short of the best by more than 0.03",
    "ours",
    "not tried there",
    "shortfall <= 0.03",
    enough="n_held_out >= 4 and n_seeds >= 2",
)
CONSTANT = Stated(
    "G2.constant",
    "between the worst strength of a data set and its best, it comes further than one strength for "
    "all data sets does, taken on the same half",
    "ours",
    "not tried there",
    "mean(further_than_constant) > 0",
    enough="n_held_out >= 4 and n_seeds >= 2",
)
CLAIMS = (CHOICE, SHORTFALL, CONSTANT)

PROPOSE = (
    "digits(renderings=(2, 2))",
    "digits(renderings=(2, 2), hue=0.0, clutter=0.0, light_on_dark=0.0)",
    "cifar10_12k",
    "omniglot even",
)
HELD_OUT = (
    "digits(renderings=(2, 2), angle=1.2, shift=0.1)",
    "digits(renderings=(2, 2), shift=0.5, scale=(0.4, 0.7), hue=0.2, clutter=0.3)",
    "cifar100_12k",
    "omniglot odd",
)


@dataclass(frozen=True)
class Settings:
    """Data sets, strengths and trainings.

    Args:
        seeds: of weights, order and views.
        propose, held_out: data sets on which the rule is proposed, and tested.
        strengths: tried on each; 0.05 and 0.5 are the ends of Table 2.
        default: the large policy, SimCLR's for small pictures [Table 2].
        preset, sets: as in the lab `strength`, with smaller batches for more steps.
        pictures: that a training sees, of any data set, repeats counted.
        rows: pictures looked at for the measures.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    propose: tuple[str, ...] = PROPOSE
    held_out: tuple[str, ...] = HELD_OUT
    strengths: tuple[float, ...] = (0.05, 0.2, 0.5, 0.8)
    default: float = 0.5
    preset: str = "geometry"
    sets: tuple[str, ...] = (
        "network.encoder=ResNet(depth=9, width=0.25, stem='strided')",
        "network.projector=Projector(d=96, depth=1, last='none')",
        "optimiser.name=adamw",
        "optimiser.lr=3e-3",
        "optimiser.weight_decay=1e-4",
        "schedule.warmup=0.5",
        "batch=64",
    )
    pictures: int = 20_000
    rows: int = 1024


QUICK = Settings(
    seeds=(0,),
    propose=("digits(renderings=(1, 1), test=0.8)",),
    held_out=("digits(renderings=(1, 1), test=0.8, hue=0.0, clutter=0.0)",),
    strengths=(0.05, 0.5),
    sets=(
        "network.encoder=ResNet(depth=9, width=0.125, stem='strided')",
        "network.projector=Projector(d=48, depth=1, last='none')",
        "optimiser.name=adamw",
        "optimiser.lr=3e-3",
        "schedule.warmup=0",
    ),
    pictures=300,
    rows=200,
)
LAPTOP = Settings()
PAPER = Settings(
    seeds=(0, 1, 2, 3, 4),
    propose=(*PROPOSE[:2], "cifar10", "omniglot even"),
    held_out=(*HELD_OUT[:2], "cifar100", "omniglot odd"),
    sets=(),
    pictures=25_000_000,
    rows=4096,
)

MEASURES = (
    *("effective_rank", "z_effective_rank", "uniformity", "z_uniformity", "alignment"),
    *("z_alignment", "pair_rank", "z_pair_rank", "recall", "movement_ratio", "z_movement_ratio"),
    *("projector_effective_rank", "displacement_unexplained", "views_annihilated", "views_gain"),
    *("views_effective_span", "span_dimension", "hardest_distance", "gap", "effective_negatives"),
)
"""What needs no label; each is taken on the training's own views and on the large policy's."""


# ---- data ----


def opened(name: str) -> cs.data.Dataset | None:
    """A data set for a training, or None where it is not on this machine.

    Of half of Omniglot, by alphabet, a quarter of the drawers is held out.
    """
    if not name.startswith("omniglot"):
        return cs.data.open_data(name) if here(name) else None
    path = Path(os.environ.get("CHIARO_DATA", ".")) / "omniglot_small.npz"
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in ("images", "labels", "alphabet", "drawer")}
    alphabets = np.unique(arrays["alphabet"])
    half = alphabets[0 if name.endswith("even") else 1 :: 2]
    kept = np.isin(arrays["alphabet"], half)
    labels = np.unique(arrays["labels"][kept], return_inverse=True)[1]
    split = (arrays["drawer"][kept] % 4 == 0).astype(np.uint8)
    images = np.repeat(arrays["images"][kept][:, :, :, None], 3, axis=3)
    images = images * np.uint8(255) if images.max() == 1 else images
    return cs.data.open_data({"images": images, "labels": labels, "split": split})


# ---- one training ----


def unlabelled(seen: Any, networks: Any, asked: Any) -> dict[str, float]:
    """All measures that need no label, of one look."""
    e = seen.embeddings
    measures = cs.diagnostics.geometry(e, networks.projectors[0], seen.second, seen.first)
    taken = cs.diagnostics.anatomy(e.z1, e.z2, cs.engine.open_run(asked).contrast, rows=asked.batch)
    recall = cs.diagnostics.retrieval(e.h1, e.h2)["image_to_text"]["recall_1"]
    numbers = measures | {
        "gap": taken.gap,
        "effective_negatives": taken.effective_negatives,
        "recall": float(recall),
    }
    for prefix, h, h1, h2 in (("", e.h, e.h1, e.h2), ("z_", e.z, e.z1, e.z2)):
        numbers[f"{prefix}effective_rank"] = cs.diagnostics.effective_rank(h)
        numbers[f"{prefix}uniformity"] = cs.diagnostics.uniformity(h)
        numbers[f"{prefix}alignment"] = cs.diagnostics.alignment(h1, h2)
        numbers[f"{prefix}pair_rank"] = cs.diagnostics.pair_rank(h1, h2)
    return {name: float(numbers[name]) for name in MEASURES}


def training(settings: Settings, source: str, n: int, strength: float, seed: int) -> Any:
    """The settings of one training, on n pictures."""
    return cs.engine.read_settings(
        settings.preset,
        [
            *settings.sets,
            f"views.first=SimCLR(size=32, strength={strength})",
            f"data.source={source}",
            f"epochs={max(1, round(settings.pictures / n))}",
            f"seed={seed}",
        ],
    )


def tried(settings: Settings, name: str, strength: float, seed: int) -> dict[str, Any]:
    """One training: measures without labels, and accuracy with them."""
    data = opened(name)
    if data is None:
        raise ValueError(f"`{name}` is not on this machine")
    n = len(data) if data.split is None else int((np.asarray(data.split) == 0).sum())
    asked = training(settings, name, n, strength, seed)
    networks, _ = trained(asked, lambda networks, epoch: None, data=data)
    large = dataclasses.replace(asked.views, first=f"SimCLR(size=32, strength={settings.default})")
    same = dataclasses.replace(asked, views=large)
    runs = [cs.engine.open_run(one, networks=networks, data=data) for one in (asked, same)]
    own, other = (cs.engine.examine(run, settings.rows, False) for run in runs)
    whole = cs.embed(networks, data, views=asked.views)
    accuracy = scored(whole)["encoder"]
    return {
        "own": unlabelled(own, networks, asked),
        "large": unlabelled(other, networks, asked),
        "knn": accuracy["knn_20"],
        "linear": accuracy["linear"],
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """A piece for each data set, strength and seed."""
    by_set: dict[str, Any] = {}
    for name in (*settings.propose, *settings.held_out):
        if opened(name) is None:
            continue
        by_set[name] = [
            [
                keep(
                    f"{name} {strength} {seed}",
                    lambda n=name, s=strength, seed=seed: tried(settings, n, s, seed),
                )
                for seed in settings.seeds
            ]
            for strength in settings.strengths
        ]
    return {
        "strengths": list(settings.strengths),
        "default": settings.default,
        "n_seeds": len(settings.seeds),
        "propose": [name for name in settings.propose if name in by_set],
        "held_out": [name for name in settings.held_out if name in by_set],
        "sets": by_set,
    }


# ---- rules ----


def accuracies(result: dict[str, Any], name: str) -> np.ndarray:
    """Accuracy of 20 neighbours by strength, the mean over seeds."""
    return np.array([np.mean([one["knn"] for one in row]) for row in result["sets"][name]])


def chosen(result: dict[str, Any], name: str, rule: tuple[str, str, float]) -> int:
    """Which strength a rule takes on a data set, without a label."""
    view, measure, sign = rule
    rows = result["sets"][name]
    values = [np.mean([one[view][measure] for one in row]) for row in rows]
    return int(np.argmax(sign * np.array(values)))


def gains(result: dict[str, Any], name: str) -> np.ndarray:
    """What each strength gains over the default, in accuracy."""
    scores = accuracies(result, name)
    return scores - scores[result["strengths"].index(result["default"])]


def possible(result: dict[str, Any], names: list[str]) -> float:
    """What the best strengths gain over the default, summed over data sets."""
    return float(sum(gains(result, name).max() for name in names))


def outcome(result: dict[str, Any], names: list[str], rule: tuple[str, str, float]) -> Any:
    """Share of the gain a rule recovers over some data sets, and the shortfall on each."""
    taken = {name: chosen(result, name, rule) for name in names}
    shortfall = {
        name: float(gains(result, name).max() - gains(result, name)[at])
        for name, at in taken.items()
    }
    return recovered(result, taken), shortfall


def recovered(result: dict[str, Any], taken: dict[str, int]) -> float:
    """Share of what the best strengths gain over the default that those taken do.

    Where there is nothing to gain, all of it is recovered by the default, and by nothing else.
    """
    gained = float(sum(gains(result, name)[at] for name, at in taken.items()))
    most = possible(result, list(taken))
    return gained / most if most > 0 else 1.0 if gained == 0 else -np.inf


def place(result: dict[str, Any], name: str, at: int) -> float:
    """Where a strength stands between the worst of a data set, 0, and its best, 1."""
    scores = accuracies(result, name)
    return float((scores[at] - scores.min()) / max(scores.max() - scores.min(), 1e-12))


def constant(result: dict[str, Any]) -> tuple[float, float]:
    """The one strength that is best on the sets for proposing, and what it recovers on the others.

    It looks at nothing: what a rule is worth is what it does beyond this.
    """

    def share(names: list[str], at: int) -> float:
        return recovered(result, dict.fromkeys(names, at))

    options = range(len(result["strengths"]))
    best = max(options, key=lambda at: share(result["propose"], at))
    return result["strengths"][best], share(result["held_out"], best)


def proposed(result: dict[str, Any]) -> list[tuple[float, tuple[str, str, float]]]:
    """All rules by what they recover on the sets for proposing, the best first."""
    rules = [
        (view, measure, sign)
        for measure in MEASURES
        for view in ("own", "large")
        for sign in (1.0, -1.0)
    ]
    ranked = [(outcome(result, result["propose"], rule)[0], rule) for rule in rules]
    return sorted(ranked, key=lambda pair: -pair[0])


def said(rule: tuple[str, str, float]) -> str:
    """A rule in words."""
    view, measure, sign = rule
    return f"{'largest' if sign > 0 else 'smallest'} {measure} on {view} views"


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """What the one proposed rule does on data it was not proposed on."""
    n = len(result["held_out"])
    if not result["propose"] or not n:
        why = "data sets to propose on and to hold out"
        return [claim.not_run(why) for claim in CLAIMS]
    at_proposing, rule = proposed(result)[0]
    share, shortfall = outcome(result, result["held_out"], rule)
    strength, of_constant = constant(result)
    most = possible(result, result["held_out"])
    many = {"n_held_out": n, "n_seeds": result["n_seeds"]}
    return [
        CHOICE.judge(
            recovered=share,
            possible=most,
            constant=of_constant,
            rule_taken=said(rule),
            recovered_at_proposing=at_proposing,
            **many,
        ),
        SHORTFALL.judge(shortfall=list(shortfall.values()), **many),
        CONSTANT.judge(
            further_than_constant=[
                place(result, name, chosen(result, name, rule))
                - place(result, name, result["strengths"].index(strength))
                for name in result["held_out"]
            ],
            constant_strength=strength,
            strengths_taken=[
                result["strengths"][chosen(result, name, rule)] for name in result["held_out"]
            ],
            **many,
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Gain over the default strength, with what the rule chose; and how rules carry over."""
    canvas, axes = style.canvas(1, 3, width=3.6, height=3.2)
    ranked = proposed(result)
    sides = (("propose", "datasets used to choose the rule"), ("held_out", "held-out datasets"))
    for axis, (side, title) in zip(axes[0], sides, strict=False):
        for name, colour in zip(result[side], style.COLOURS, strict=False):
            scores = accuracies(result, name)
            usual = scores[result["strengths"].index(result["default"])]
            gains = [100 * (score - usual) for score in scores]
            at = chosen(result, name, ranked[0][1])
            axis.plot(result["strengths"], gains, marker="o", color=colour, label=_short(name))
            axis.plot(
                *(result["strengths"][at], gains[at], "s"), markersize=10,
                markerfacecolor="none", markeredgecolor=colour,
            )  # fmt: skip
        axis.axvline(result["default"], color=style.GREY, linestyle=":", linewidth=1)
        axis.annotate(
            "default", (result["default"], 0.99), xycoords=("data", "axes fraction"),
            xytext=(-3, 0), textcoords="offset points", ha="right", va="top",
            color=style.GREY,
        )  # fmt: skip
        axis.plot([], [], "s", markerfacecolor="none", color=style.GREY, label="chosen by the rule")
        if result[side]:
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=7)
        style.label(axis, "strength of the views", "gain in kNN accuracy, points", title)
    carried = axes[0, 2]
    if result["propose"] and result["held_out"]:
        there = [outcome(result, result["held_out"], r)[0] for _, r in ranked]
        here_ = [score for score, _ in ranked]
        carried.plot(np.clip(here_, -2, 1), np.clip(there, -2, 1), "o", color=style.GREY)
        best = (max(here_[0], -2), max(there[0], -2))
        carried.plot(*best, "s", color=style.COLOURS[1])
        carried.annotate(
            "chosen", best, xytext=(-6, 6), textcoords="offset points", ha="right",
            color=style.COLOURS[1],
        )  # fmt: skip
    carried.axhline(0.8, color=style.GREY, linestyle=":", linewidth=1)
    carried.annotate(
        "claim: at least 0.8", (0, 0.8), xycoords=("axes fraction", "data"), xytext=(3, -3),
        textcoords="offset points", va="top", color=style.GREY,
    )  # fmt: skip
    style.label(carried, "gain recovered where chosen", "gain recovered, held out", "every rule")
    return canvas


def _short(name: str) -> str:
    """Return the name of a data set without what all of them share."""
    return name.replace("renderings=(2, 2)", "").replace("(, ", "(").replace("()", "")
