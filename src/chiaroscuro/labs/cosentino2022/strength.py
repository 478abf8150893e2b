"""Figs. 1, 3-7, 9: augmentation strength against the ranks of projector and encoder, on pictures.

Paper: cosentino2022, Secs. 2, 4, 5, Table 2, Figs. 1, 3, 4, 5, 6, 7, 9. SimCLR with the loss of eq.
(1), beta = 2, a linear projector, three policies of augmentation. Here the policies are points of
one knob, `SimCLR(strength)`: small 0.05, moderate 0.25, large 0.5; it is swept.

Judged, over seeds. G1: the policies are those of Table 2 and the preset `geometry` is Sec. 2's. G2:
the rank of the projector falls with strength, and the encoder's accuracy rises. G3: the bound of
eq. (3) follows the loss. G4: the encoder keeps its rank at every strength. G5: the hardest negative
is farther in the encoder's space for small strength, and the nearest image, on plain views that are
the same for every strength, comes to share the label in training. G6: the projector comes to
explain delta-h. G7, beyond the paper: whether rank(W) = min(d_proj, d_enc - span) holds for this
trained nonlinear encoder, with the span estimated from the recorded parameters of the views
(`augmentation_span`).

The rank of Fig. 1 is not given by a threshold here (eq. (2) states none, and under a loss of
cosines W and W / 100 are the same projector): it is the effective rank by squares of the singular
values, of W and of z, with that by values and the rank of the random start beside it. That start
matters: a random 96 x 128 matrix has an effective rank of 84 by values, and AdamW with decay 1e-4,
used here before, hardly moves W in six epochs, so that the curve of Fig. 1 showed the start. Sec. 2
trains with LARS at rate 4, and so does this lab now: the ranks of W and of z fall with strength as
in Fig. 1. After eight epochs the rank of W at small strength is still about that of its start;
after sixty it differs from it at every strength.

Fig. 5's "normalized" distance is that of unit vectors here; the hardest negative of Figs. 5 to 7 is
that among all pictures looked at (the paper does not say among how many). All are numbers of
`chiaro diagnose RUN`.

Results of sixty epochs (`long`): effective ranks of W by squares 80, 25 and 13 at strengths 0.05,
0.25 and 0.5 (start 66; the paper about 128, 60 and 20 of 128), of z 79, 22 and 10. From small to
large strength neighbours from h gain 5.9 points and a linear readout 7.0; moderate and large are
alike. From the first epoch on the bound of eq. (3) follows the loss at every strength (correlations
of 0.96 to 0.99); with the random start among the looks it does at small strength only. The
effective rank by squares of h falls as well, 64, 27 and 19 of 128, less than that of W. By the
count of singular values above 1e-3 of the largest, neither falls: h has 128 of 128 and W 96 of 96
at every strength, so that this count says nothing (G4.encoder is left open). Props. 4.1 and 4.2
would have ranks of 11 to 32; by squares W is off by 0.23 of d_proj, mostly at small strength
(G7.trained fails).

Deviations at the laptop scale: ResNet(depth=9, width=0.25, stem='strided') with d_enc = 128 and a
linear projector to d_proj = 96, so that d_enc - span < d_proj, without which no collapse can show,
happens from a span of 33 on (in the paper 512 - span < 128 needs 385); 10,000 pictures of CIFAR-100
(`cifar100_12k` in CHIARO_DATA, else wandering digits, where coarse labels are missing); eight
epochs; three seeds where Fig. 5 has five runs. At `long` sixty epochs, trained in bfloat16 (what is
measured is computed in full precision). Not stated in the paper and ours: cosine schedule.
Numbers along the way are of 2,048 pictures, accuracy at the end of all.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Remark, Stated, at_once, style
from chiaroscuro.labs.cosentino2022._strength_page import page
from chiaroscuro.labs.cosentino2022.annihilated import by_squares
from chiaroscuro.labs.trained import here, scored, trained

__all__ = ["CLAIMS", "LAPTOP", "LONG", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

ENOUGH = "n_seeds >= 3 and epochs >= 8"
POLICIES = Stated(
    "G1.policies",
    "the strengths 0.05, 0.25 and 0.5 are the small, moderate and large policies",
    "Table 2",
    "small, moderate, large",
    "differences == 0",
    kind="definition",
)
PRESET = Stated(
    "G1.preset",
    "the preset `geometry` is the training of Sec. 2, and the scale `paper` of this lab uses it",
    "Sec. 2",
    "ResNet-18, linear 512 x 128, eq. (1), beta 2, LARS 4, 1e-6, 0.9",
    "differences == 0",
    kind="definition",
)
RANK = Stated(
    "G2.rank",
    "the stronger the augmentation, the lower the effective rank of the projector W, and of z "
    "(by squares of the singular values)",
    "Fig. 1",
    "about 128, 60, 20 for small, moderate, large (read off)",
    "mean(small_minus_moderate) > 0 and mean(moderate_minus_large) > 0 "
    "and mean(z_small_minus_moderate) > 0 and mean(z_moderate_minus_large) > 0",
    enough=ENOUGH,
)
ACCURACY = Stated(
    "G2.accuracy",
    "the encoder is better at large strength than at small (20 neighbours, and linear)",
    "Fig. 1",
    "rises with strength",
    "mean(knn_large_minus_small) > 0 and mean(linear_large_minus_small) > 0",
    enough=ENOUGH,
)
FOLLOWS = Stated(
    "G3.follows",
    "from the first epoch on, the bound of eq. (3) follows the loss at every strength (correlation "
    "above 0.9)",
    "Fig. 3, at every strength (ours)",
    "behave similarly, at a strength that is not named",
    "mean(correlation_small) > 0.9 and mean(correlation_moderate) > 0.9 "
    "and mean(correlation_large) > 0.9",
    enough=f"{ENOUGH} and n_looks >= 8",
)
BOUND = Stated(
    "G3.pictures",
    "with the random start among the looks, the bound of eq. (3) follows the loss at small "
    "strength, and less at large",
    "Fig. 3, by the strength of augmentation (ours)",
    "not said",
    "mean(correlation_small) > 0.9 and mean(small_minus_large) > 0 and least_gap > 0",
    enough=ENOUGH,
)
ENCODER = Stated(
    "G4.encoder",
    "the encoder's outputs have d_enc singular values above 1e-3 of the largest at every strength, "
    "plain and augmented",
    "Figs. 4, 9",
    "about 512 of 512",
    "mean(plain_share) >= 0.95 and mean(augmented_share) >= 0.95",
    # the same count must see the fall of W, or it says nothing of h
    enough=f"{ENOUGH} and w_share_large < 0.95",
)
ENCODER_SQUARES = Stated(
    "G4.by_squares",
    "by the measure that shows the fall of W, the effective rank by squares, the encoder's outputs "
    "keep their rank too: at large strength at least 0.95 of that at small",
    "Figs. 1, 4, 9, by one measure (ours)",
    "not said",
    "mean(large_over_small) >= 0.95",
    enough=ENOUGH,
)
DISTANCE = Stated(
    "G5.distance",
    "the hardest negative is farther from h1, the smaller the strength",
    "Fig. 5",
    "small > moderate > large",
    "mean(small_minus_moderate) > 0 and mean(moderate_minus_large) > 0",
    enough=ENOUGH,
)
LABELS = Stated(
    "G5.labels",
    "in training the nearest other image, on plain views, comes to share the fine and the coarse "
    "label at every strength, and more so for large strength than for small",
    "Fig. 6, by plain views in the encoder's space",
    "of the hardest negative and the positive: rises in training, at every strength",
    "mean(fine_rise_small) > 0 and mean(coarse_rise_small) > 0 "
    "and mean(fine_rise_moderate) > 0 and mean(coarse_rise_moderate) > 0 "
    "and mean(fine_rise_large) > 0 and mean(coarse_rise_large) > 0 "
    "and mean(fine_large_minus_small) > 0 and mean(coarse_large_minus_small) > 0",
    enough=ENOUGH,
)
UNEXPLAINED = Stated(
    "G6.falls",
    "the share of delta-h that W does not explain falls from its start, averaged over strengths",
    "Fig. 7, eq. (10)",
    "decreases drastically",
    "mean(end_minus_start) < 0",
    enough=ENOUGH,
)
RELATION = Stated(
    "G7.trained",
    "rank(W) = min(d_proj, d_enc - span) for a trained encoder, within a tenth of d_proj, the rank "
    "by squares of the singular values",
    "Props. 4.1, 4.2, beyond their linear model",
    "proved for a linear model",
    "mean(off) < 0.1 and least_predicted_share < 1",
    enough=ENOUGH,
)
THRESHOLD = Remark(
    "G2.threshold",
    "eq. (2): singular values greater than tau",
    "an absolute threshold gives W and W / 100, under which the loss is the same, one rank.",
    "difference == 0",
    "a threshold relative to the largest does.",
    "difference == 0 and loss_difference < 1e-6",
)
CLAIMS = (
    *(POLICIES, PRESET, RANK, THRESHOLD, ACCURACY, FOLLOWS, BOUND, ENCODER, ENCODER_SQUARES),
    *(DISTANCE, LABELS, UNEXPLAINED, RELATION),
)


@dataclass(frozen=True)
class Settings:
    """The sweep.

    Args:
        seeds: of weights, order and views; Figs. 3 and 7 have 5 runs.
        strengths: 0.05, 0.25 and 0.5 [Table 2].
        source: CIFAR-100 in Sec. 2; a second choice where it is not on the machine.
        fallback: that second choice.
        preset: of what is not said here; Sec. 2's.
        sets: over the preset.
        epochs: 500 in Fig. 6.
        looks: after how many epochs the measures are taken; 0 is before training.
        rows: pictures looked at.
    """

    seeds: tuple[int, ...] = (6, 7, 8)
    strengths: tuple[float, ...] = (0.05, 0.25, 0.5)
    source: str = "cifar100_12k"
    fallback: str = "digits(renderings=(4, 4))"
    preset: str = "geometry"
    sets: tuple[str, ...] = ()
    epochs: int = 8
    looks: tuple[int, ...] = tuple(range(9))
    rows: int = 2048


QUICK = Settings(
    seeds=(0,),
    source="digits(renderings=(1, 1), test=0.8)",
    sets=(
        "network.encoder=ResNet(depth=9, width=0.125, stem='strided')",
        "network.projector=Projector(d=48, depth=1, last='none')",
        "schedule.warmup=0.5",
    ),
    epochs=1,
    looks=(0, 1),
    rows=200,
)
NARROW = (
    "network.encoder=ResNet(depth=9, width=0.25, stem='strided')",
    "network.projector=Projector(d=96, depth=1, last='none')",
    "schedule.warmup=1",
)
LAPTOP = Settings(sets=NARROW)
LONG = Settings(
    source="cifar100",
    fallback="cifar100_12k",
    sets=(*NARROW, "schedule.warmup=5", "precision=bfloat16"),
    epochs=60,
    looks=(0, 1, 2, 4, 8, 15, 30, 45, 60),
)
PAPER = Settings(
    seeds=(0, 1, 2, 3, 4),
    source="cifar100",
    epochs=500,
    looks=(0, 1, 10, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500),
    rows=10000,
)

TABLE_2: dict[str, dict[str, Any]] = {
    "small": {"scale": (0.9, 1.0), "flip": 0.0, "s": 0.05},
    "moderate": {"scale": (0.5, 1.0), "flip": 0.5, "s": 0.25},
    "large": {"scale": (0.08, 1.0), "flip": 0.5, "s": 0.5},
}
NUISANCES = (
    *("top", "left", "height", "width", "brightness", "contrast", "saturation", "hue"),
    *("flip", "grayscale"),
)
BINS = np.linspace(0, 2, 61)


# ---- one training ----


def source(settings: Settings) -> str:
    """The data set, or the second choice."""
    return settings.source if here(settings.source) else settings.fallback


def training(settings: Settings, strength: float, seed: int) -> Any:
    """The settings of one training."""
    return cs.engine.read_settings(
        settings.preset,
        [
            *settings.sets,
            f"views.first=SimCLR(size=32, strength={strength})",
            f"data.source={source(settings)}",
            f"epochs={settings.epochs}",
            f"seed={seed}",
        ],
    )


def measured(networks: Any, asked: Any, rows: int, epoch: int) -> dict[str, Any]:
    """Every number of the lab at one moment, from rows and two views of each."""
    seen = cs.engine.examine(cs.engine.open_run(asked, networks=networks), rows, False)
    e = seen.embeddings
    measures: dict[str, Any] = cs.diagnostics.geometry(
        e, networks.projectors[0], seen.second, seen.first
    )
    objective = cs.engine.open_run(asked).contrast
    batches = [
        cs.diagnostics.anatomy(e.z1, e.z2, objective, rows=asked.batch, seed=i) for i in range(8)
    ]
    apart = cs.diagnostics.displacements(e.h1, e.h2, e.z1, e.z2)
    spectra = {name: cs.diagnostics.spectrum(getattr(e, name)) for name in ("h", "h1", "z")}
    W: Any = cs.diagnostics.weights_of(networks.projectors[0], networks.encoders[0].d)
    untrained: Any = cs.engine.build(asked.network, asked.seed)
    first: Any = cs.diagnostics.weights_of(untrained.projectors[0], untrained.encoders[0].d)
    return measures | {
        "epoch": epoch,
        "loss": float(np.mean([one.loss for one in batches])),
        "bound": float(np.mean([one.bound for one in batches])),
        "ranks": {name: one.numerical_rank for name, one in spectra.items()},
        "effective": {name: one.effective_rank for name, one in spectra.items()},
        "spectra": {name: _digits(one.values) for name, one in spectra.items()},
        "weights": _digits(cs.diagnostics.singular_values(W, centred=False)),
        "overlap": float((W * first).sum() / (np.linalg.norm(W) * np.linalg.norm(first))),
        "scaled": scaled(W, e, objective, asked.batch),
        "distances": np.histogram(apart.distance, BINS)[0].tolist(),
        "knn": scored(e)["encoder"]["knn_20"],
        "nearest": nearest(e),
        "alignment": cs.diagnostics.alignment(e.h1, e.h2),
    }


def nearest(e: Any) -> dict[str, float]:
    """How often the nearest other row of h, on plain views, has the fine and the coarse label."""
    h = e.h / np.maximum(np.linalg.norm(e.h, axis=1, keepdims=True), 1e-12)
    cosines = h @ h.T
    np.fill_diagonal(cosines, -np.inf)
    other = cosines.argmax(axis=1)
    labels = {"fine": e.labels, "coarse": e.coarse_labels}
    return {
        name: float(np.mean(np.asarray(y)[other] == np.asarray(y)))
        for name, y in labels.items()
        if y is not None
    }


def scaled(W: Any, e: Any, objective: Any, batch: int) -> dict[str, Any]:
    """Ranks and loss of W and of W / 100."""
    both = [(factor * W, factor * e.z1, factor * e.z2) for factor in (1.0, 0.01)]
    return {
        "absolute": [cs.diagnostics.absolute_rank(w, 0.1) for w, _, _ in both],
        "relative": [cs.diagnostics.numerical_rank(w, centred=False) for w, _, _ in both],
        "loss": [cs.diagnostics.anatomy(a, b, objective, rows=batch).loss for _, a, b in both],
    }


def _digits(values: np.ndarray) -> list[float]:
    return [float(f"{x:.4g}") for x in values]


def readouts(networks: Any, asked: Any, rows: int) -> dict[str, Any]:
    """What h and z tell of a view's own parameters, and of factors of the data, on large views.

    The same policy for every strength, so that there is as much to tell.
    """
    large = dataclasses.replace(asked.views, first="SimCLR(size=32, strength=0.5)")
    asked = dataclasses.replace(asked, views=large)
    seen = cs.engine.examine(cs.engine.open_run(asked, networks=networks), rows, False)
    e: Any = seen.embeddings
    omega: Any = seen.second
    layers = {"h": e.h2, "z": e.z2}
    factors: dict[str, Any] = {name: omega[name].astype(float) for name in NUISANCES}
    kinds = dict.fromkeys(factors, "number")
    readable = cs.diagnostics.survival({**layers}, factors, kinds)
    out: dict[str, Any] = {"views": _table(readable)}
    if e.factors is not None:
        names = [str(name) for name in e.factor_names]
        own = {name: np.asarray(e.factors[:, i], float) for i, name in enumerate(names)}
        out["factors"] = _table(
            cs.diagnostics.survival({"h": e.h, "z": e.z}, own, dict.fromkeys(own, "number"))
        )
    out["movement"] = {
        "h": cs.diagnostics.movement(e.h1, e.h2, omega).ratio,
        "z": cs.diagnostics.movement(e.z1, e.z2, omega).ratio,
    }
    return out


def _table(readable: Any) -> dict[str, dict[str, float]]:
    return {
        layer: {name: float(x) for name, x in zip(readable.factors, row, strict=True)}
        for layer, row in zip(readable.layers, readable.above_chance, strict=True)
    }


def swept(settings: Settings, strength: float, seed: int) -> dict[str, Any]:
    """One training: its moments, and its accuracy on all pictures at the end."""
    asked = training(settings, strength, seed)
    look = lambda networks, epoch: measured(networks, asked, settings.rows, epoch)
    networks, moments = trained(asked, look, settings.looks)
    whole = cs.embed(networks, asked.data.source, views=asked.views)
    return {
        "strength": strength,
        "seed": seed,
        "d_enc": networks.encoders[0].d,
        "d_proj": networks.projectors[0].d,
        "moments": moments,
        "readouts": readouts(networks, asked, settings.rows),
        "accuracy": scored(whole),
    }


# ---- identities ----


def policies() -> int:
    """How many entries of Table 2 the knob does not reproduce."""
    wrong = 0
    for name, row in TABLE_2.items():
        made = getattr(cs.views.SimCLR, name)(32).explicit()
        s = row["s"]
        told = {
            "scale": row["scale"],
            "flip": row["flip"],
            "grayscale": 0.2,
            "jitter": 0.8,
            "brightness": 0.8 * s,
            "contrast": 0.8 * s,
            "saturation": 0.8 * s,
            "hue": 0.2 * s,
            "blur": 0.0,
        }
        same = cs.views.SimCLR(size=32, strength=s).explicit() == made
        wrong += not same
        wrong += sum(getattr(made, key) != value for key, value in told.items())
    return wrong


def preset() -> int:
    """How many settings of the preset, and of this lab's `PAPER`, are not those of Sec. 2."""
    wrong = 0
    for asked in (cs.engine.read_settings("geometry"), _paper()):
        wrong += asked.objective != "InfoNCE(kernel=Cosine(tau=0.5), negatives=AllButPair())"
        wrong += asked.network.encoder != "ResNet(depth=18, stem='small')"
        wrong += asked.network.projector != "Projector(d=128, depth=1, last='none')"
        told = asked.optimiser
        kept = (told.name, told.lr, told.momentum, told.weight_decay)
        wrong += kept != ("lars", 4.0, 0.9, 1e-6)
        wrong += (asked.epochs, asked.batch) != (500, 128)
    return wrong


def _paper() -> Any:
    there = dataclasses.replace(PAPER, source="digits")  # no training: the data do not matter
    return training(there, 0.5, 0)


# ---- the lab ----


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """A piece for each seed and strength."""
    return {
        "source": source(settings),
        "epochs": settings.epochs,
        "strengths": list(settings.strengths),
        "policies": policies(),
        "preset": preset(),
        "runs": [
            keep(f"seed {seed} strength {s}", lambda s=s, seed=seed: swept(settings, s, seed))
            for seed in settings.seeds
            for s in settings.strengths
        ],
    }


def of(result: dict[str, Any], strength: float) -> list[dict[str, Any]]:
    """The runs of one strength, by seed."""
    return [run for run in result["runs"] if run["strength"] == strength]


def ends(result: dict[str, Any], strength: float, name: str) -> list[float]:
    """A number of the last moment of every run of one strength."""
    return [run["moments"][-1][name] for run in of(result, strength)]


def minus(a: list[float], b: list[float]) -> list[float]:
    """Differences by seed."""
    return [x - y for x, y in zip(a, b, strict=True)]


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Policies, ranks, accuracy, bound, distances, labels, displacements."""
    small, moderate, large = (cs.views.STRENGTHS[name] for name in ("small", "moderate", "large"))
    runs = result["runs"]
    many = {"n_seeds": len(of(result, small)), "epochs": result["epochs"]}
    end = lambda strength, name: ends(result, strength, name)
    score = lambda strength, name: [
        run["accuracy"]["encoder"][name] for run in of(result, strength)
    ]
    last = [run["moments"][-1] for run in runs]
    off = [
        abs(by_squares(m["weights"]) - m["predicted_rank"]) / run["d_proj"]
        for run, m in zip(runs, last, strict=True)
    ]
    spectra = lambda strength, name, at=-1: [
        run["moments"][at]["weights"] if name == "w" else run["moments"][at]["spectra"][name]
        for run in of(result, strength)
    ]
    squares = lambda *which: [by_squares(s) for s in spectra(*which)]
    by_values = lambda *which: float(np.mean([by_squares(np.sqrt(s)) for s in spectra(*which)]))
    follows = lambda strength, since=1: [
        _correlation(run["moments"][since:]) for run in of(result, strength)
    ]
    by_seed = lambda values: [
        float(np.mean(row)) for row in np.reshape(values, (many["n_seeds"], -1))
    ]

    def rise(strength: float, label: str) -> list[float]:
        return [
            run["moments"][-1]["nearest"][label] - run["moments"][0]["nearest"][label]
            for run in of(result, strength)
        ]

    labelled = [
        LABELS.not_run(f"`{result['source']}` has no coarse labels")
        if "coarse" not in last[0]["nearest"]
        else LABELS.judge(
            **{
                f"{label}_rise_{text}": rise(strength, label)
                for label in ("fine", "coarse")
                for text, strength in (("small", small), ("moderate", moderate), ("large", large))
            },
            hardest_rise_large=minus(
                end(large, "hardest_agreement"),
                [run["moments"][0]["hardest_agreement"] for run in of(result, large)],
            ),
            **{
                f"{label}_large_minus_small": minus(rise(large, label), rise(small, label))
                for label in ("fine", "coarse")
            },
            **many,
        )
    ]
    return [
        POLICIES.judge(differences=result["policies"]),
        PRESET.judge(differences=result["preset"]),
        RANK.judge(
            small_minus_moderate=minus(squares(small, "w"), squares(moderate, "w")),
            moderate_minus_large=minus(squares(moderate, "w"), squares(large, "w")),
            z_small_minus_moderate=minus(squares(small, "z"), squares(moderate, "z")),
            z_moderate_minus_large=minus(squares(moderate, "z"), squares(large, "z")),
            **{
                f"{name}_{text}": float(np.mean(squares(strength, name)))
                for name in ("w", "z")
                for text, strength in (("small", small), ("moderate", moderate), ("large", large))
            },
            w_at_start=float(np.mean(squares(large, "w", 0))),
            z_at_start=float(np.mean(squares(large, "z", 0))),
            **{
                f"{name}_by_values": [by_values(s, name) for s in (small, moderate, large)]
                for name in ("w", "z")
            },
            w_at_start_by_values=by_values(large, "w", 0),
            z_at_start_by_values=by_values(large, "z", 0),
            **many,
        ),
        THRESHOLD.judge(
            expected={"difference": _apart(last, "absolute")},
            ours={
                "difference": _apart(last, "relative"),
                "loss_difference": _apart(last, "loss"),
            },
        ),
        ACCURACY.judge(
            knn_large_minus_small=minus(score(large, "knn_20"), score(small, "knn_20")),
            linear_large_minus_small=minus(score(large, "linear"), score(small, "linear")),
            **many,
        ),
        FOLLOWS.judge(
            correlation_small=follows(small),
            correlation_moderate=follows(moderate),
            correlation_large=follows(large),
            n_looks=len(runs[0]["moments"]) - 1,
            **many,
        ),
        BOUND.judge(
            correlation_small=follows(small, 0),
            correlation_large=follows(large, 0),
            small_minus_large=minus(follows(small, 0), follows(large, 0)),
            least_gap=min(m["bound"] - m["loss"] for run in runs for m in run["moments"]),
            **many,
        ),
        ENCODER.judge(
            plain_share=by_seed(
                [m["ranks"]["h"] / r["d_enc"] for r, m in zip(runs, last, strict=True)]
            ),
            augmented_share=by_seed(
                [m["ranks"]["h1"] / r["d_enc"] for r, m in zip(runs, last, strict=True)]
            ),
            w_share_large=float(np.mean(end(large, "projector_rank"))) / runs[0]["d_proj"],
            **many,
        ),
        ENCODER_SQUARES.judge(
            large_over_small=[
                x / y for x, y in zip(squares(large, "h"), squares(small, "h"), strict=True)
            ],
            **{
                f"h_{text}": float(np.mean(squares(strength, "h")))
                for text, strength in (("small", small), ("moderate", moderate), ("large", large))
            },
            h_at_start=float(np.mean(squares(large, "h", 0))),
            w_large_over_small=[
                x / y for x, y in zip(squares(large, "w"), squares(small, "w"), strict=True)
            ],
            **many,
        ),
        DISTANCE.judge(
            small_minus_moderate=minus(
                end(small, "hardest_distance"), end(moderate, "hardest_distance")
            ),
            moderate_minus_large=minus(
                end(moderate, "hardest_distance"), end(large, "hardest_distance")
            ),
            **many,
        ),
        *labelled,
        UNEXPLAINED.judge(
            end_minus_start=by_seed(
                [
                    run["moments"][-1]["displacement_unexplained"]
                    - run["moments"][0]["displacement_unexplained"]
                    for run in runs
                ]
            ),
            **many,
        ),
        RELATION.judge(
            off=by_seed(off),
            least_predicted_share=min(
                m["predicted_rank"] / r["d_proj"] for r, m in zip(runs, last, strict=True)
            ),
            **many,
        ),
    ]


def _apart(moments: list[dict[str, Any]], name: str) -> list[float]:
    """How far W and W / 100 are apart in a number."""
    return [abs(one - two) for one, two in (m["scaled"][name] for m in moments)]


def _correlation(moments: list[dict[str, Any]]) -> float:
    if len(moments) < 2:
        return math.nan
    return float(np.corrcoef([m["loss"] for m in moments], [m["bound"] for m in moments])[0, 1])


def curves(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the figure draws, and the spectra at the start and the end."""
    names = (
        *("epoch", "loss", "bound", "knn", "nearest", "hardest_distance", "weights"),
        *("hardest_agreement", "ranks", "predicted_rank", "projector_rank"),
        *("displacement_unexplained", "overlap", "scaled"),
    )
    kept = []
    for run in result["runs"]:
        moments = [
            {name: m[name] for name in names if name in m} | {"spectra": {"z": m["spectra"]["z"]}}
            for m in run["moments"]
        ]
        for at in (0, -1):
            moments[at]["spectra"] = run["moments"][at]["spectra"]
        kept.append({**run, "moments": moments})
    return {**result, "runs": kept}


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Figs. 1, 3, 5 and 6 over training."""
    return page(result)
