"""Sec. 5 on pictures: linear projectors against MLPs, by width and depth.

Paper: cosentino2022, Sec. 5, eq. (11), Fig. 8. With a linear projector the encoder has to put the
directions delta-h of the data into one subspace; an MLP fits them region by region, the finer the
wider and deeper it is, and leaves the encoder freer. The paper argues and refers to Chen et al. for
accuracies; it has no experiment on this.

Judged over seeds: regions that pictures visit against width and depth; the local fit of delta-h;
accuracy of the encoder, under MLPs on average and not under the best of them, for the best of five
beats one by chance. The numbers are those of `chiaro diagnose RUN`.

Results. Regions grow as Sec. 5 says, until each picture has its own. Trained with LARS, as in the
lab `strength`, what an MLP leaves unexplained of delta-h locally falls with width (0.41, 0.32,
0.29) and with depth (0.32 to 0.29), and on each of three seeds the widest and the deepest leave
less than the linear projector's 0.32, by 0.03 +- 0.04 and 0.03 +- 0.07: too little for three seeds
(G8.local_fit). With AdamW, in the run before, the linear projector was better by 0.01 and 0.06.
Under MLPs the encoder is on average read 0.8 points worse than under a linear projector (0.2 to
1.4; G8.encoder fails), at 15 % of a hundred classes after five epochs; four layers are worst, 1.7
below.

Deviations: network, data and schedule as in the lab `strength` at its laptop scale, at the large
policy. Hidden layers have no normalisation, so that depth is all that differs; d_proj is 32, a
quarter of d_enc as in the paper, so that every local map has a kernel.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style
from chiaroscuro.labs.trained import here, scored, trained

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

ENOUGH = "n_seeds >= 3 and epochs >= 4"
REGIONS = Stated(
    "G8.pictures",
    "on pictures, the regions visited do not become fewer with width, nor with depth",
    "Sec. 5",
    "larger number of regions",
    "least_step_width >= 0 and least_step_depth >= 0",
    enough=ENOUGH,
)
FIT = Stated(
    "G8.local_fit",
    "on pictures, the widest and the deepest MLP fit delta-h locally better than a linear one",
    "Sec. 5, Fig. 8",
    "more refined",
    "mean(widest) < mean(linear) and mean(deepest) < mean(linear)",
    enough=ENOUGH,
)
READOUT = Stated(
    "G8.encoder",
    "the encoder under MLPs, on average, is better than under a linear projector (linear readout)",
    "Sec. 5: unlocks its expressive power",
    "improves",
    "mean(gain) > 0",
    enough=ENOUGH,
)
CLAIMS = (REGIONS, FIT, READOUT)


@dataclass(frozen=True)
class Settings:
    """Which projectors.

    Args:
        seeds: of weights, order and views.
        widths: of the hidden layer of a two-layer projector; d_enc is 128 at the laptop scale.
        depths: linear layers at the width of `width`; 1 is the linear projector.
        width: for the depths.
        d_proj: 128 of 512 in Sec. 2.
        source, fallback: as in the lab `strength`.
        preset, sets: of the training, as in the lab `strength`.
        strength: of the large policy, Table 2.
        epochs: of each training; 500 in Fig. 6.
        rows: pictures looked at.
    """

    seeds: tuple[int, ...] = (3, 4, 5)
    widths: tuple[int, ...] = (32, 128, 512)
    depths: tuple[int, ...] = (1, 2, 3, 4)
    width: int = 128
    d_proj: int = 32
    source: str = "cifar100_12k"
    fallback: str = "digits(renderings=(4, 4))"
    preset: str = "geometry"
    sets: tuple[str, ...] = (
        "network.encoder=ResNet(depth=9, width=0.25, stem='strided')",
        "schedule.warmup=1",
    )
    strength: float = 0.5
    epochs: int = 5
    rows: int = 2048


QUICK = Settings(
    seeds=(0,),
    widths=(16, 64),
    depths=(1, 2),
    width=64,
    d_proj=16,
    source="digits(renderings=(1, 1), test=0.8)",
    sets=(
        "network.encoder=ResNet(depth=9, width=0.125, stem='strided')",
        "optimiser.name=adamw",
        "optimiser.lr=3e-3",
        "schedule.warmup=0",
    ),
    epochs=1,
    rows=200,
)
LAPTOP = Settings()
PAPER = Settings(
    seeds=(0, 1, 2, 3, 4),
    widths=(128, 512, 2048),
    width=512,
    d_proj=128,
    source="cifar100",
    sets=(),
    epochs=500,
    rows=10000,
)


def training(settings: Settings, depth: int, width: int, seed: int) -> Any:
    """The settings of one training."""
    source = settings.source if here(settings.source) else settings.fallback
    shape = f"d={settings.d_proj}, depth={depth}, width={width}, batch_norm=False, last='none'"
    return cs.engine.read_settings(
        settings.preset,
        [
            *settings.sets,
            f"network.projector=Projector({shape})",
            f"views.first=SimCLR(size=32, strength={settings.strength})",
            f"data.source={source}",
            f"epochs={settings.epochs}",
            f"seed={seed}",
        ],
    )


def shapes(settings: Settings) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Depth and width of the projectors: by width at two layers, and by depth at one width."""
    wide = [(2, width) for width in settings.widths]
    return wide, [(depth, settings.width) for depth in settings.depths]


def fitted(settings: Settings, depth: int, width: int, seed: int) -> dict[str, Any]:
    """Train with one projector; regions, local fit, and accuracy of the encoder."""
    asked = training(settings, depth, width, seed)
    networks, _ = trained(asked, lambda networks, epoch: None)
    seen = cs.engine.examine(cs.engine.open_run(asked, networks=networks), settings.rows, False)
    e = seen.embeddings
    measures = cs.diagnostics.geometry(e, networks.projectors[0], seen.second, seen.first)
    whole = cs.embed(networks, asked.data.source, views=asked.views)
    accuracy = scored(whole)
    return {
        "depth": depth,
        "width": width,
        "visited": measures.get("regions_visited", 1),
        "unexplained": measures["displacement_unexplained"],
        "together": measures.get("regions_together", 1.0),
        "rank_h": cs.diagnostics.effective_rank(e.h),
        "rank_z": cs.diagnostics.effective_rank(e.z),
        "movement": measures["movement_ratio"],
        "z_movement": measures["z_movement_ratio"],
        "knn": accuracy["encoder"]["knn_20"],
        "linear": accuracy["encoder"]["linear"],
        "z_linear": accuracy["projector"]["linear"],
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """A piece for each seed and projector; the shape that both lists have is trained once."""
    wide, deep = shapes(settings)
    result = {
        (*shape, seed): keep(
            f"depth {shape[0]} width {shape[1]} seed {seed}",
            lambda depth=shape[0], width=shape[1], s=seed: fitted(settings, depth, width, s),
        )
        for seed in settings.seeds
        for shape in dict.fromkeys([*wide, *deep])
    }
    each = lambda list_: [[result[(*shape, seed)] for shape in list_] for seed in settings.seeds]
    return {
        "widths": each(wide),
        "depths": each(deep),
        "n": settings.rows,
        "epochs": settings.epochs,
    }


def least_step(rows: list[list[dict[str, float]]], n: int) -> float:
    """The least growth of the mean number of regions, where fewer than nine in ten are alone."""
    means = [float(np.mean([one["visited"] for one in at])) for at in zip(*rows, strict=True)]
    steps = [b - a for a, b in itertools.pairwise(means) if a < 0.9 * n]
    return min(steps, default=0.0)


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Regions, fit, encoder."""
    wide, deep = result["widths"], result["depths"]
    many = {"n_seeds": len(wide), "epochs": result["epochs"]}
    fit = lambda rows, at: [row[at]["unexplained"] for row in rows]
    over: dict[str, list[float]] = {"gain": [], "gain_of_best": []}
    for row, more in zip(deep, wide, strict=True):
        bent = {(one["depth"], one["width"]): one["linear"] for one in (*row, *more)}
        straight = bent.pop((1, row[0]["width"]))
        over["gain"].append(float(np.mean(list(bent.values()))) - straight)
        over["gain_of_best"].append(max(bent.values()) - straight)
    return [
        REGIONS.judge(
            least_step_width=least_step(wide, result["n"]),
            least_step_depth=least_step(deep, result["n"]),
            **many,
        ),
        FIT.judge(linear=fit(deep, 0), widest=fit(wide, -1), deepest=fit(deep, -1), **many),
        READOUT.judge(**over, **many),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Regions, fit and accuracy by width (above) and by depth (below)."""
    canvas, axes = style.canvas(2, 3)
    for row, (name, x) in zip(axes, (("widths", "width"), ("depths", "depth")), strict=True):
        at = [one[x] for one in result[name][0]]
        title = "two layers" if x == "width" else f"width {result[name][0][0]['width']}"
        for axis, keys, y in (
            (row[0], ("visited",), f"regions visited of {result['n']}"),
            (row[1], ("unexplained",), "delta-h unexplained, locally"),
            (row[2], ("linear", "knn", "z_linear"), "accuracy"),
        ):
            for i, key in enumerate(keys):
                values = np.array([[one[key] for one in seed] for seed in result[name]])
                mean, spread = values.mean(axis=0), values.std(axis=0)
                text = {"linear": "h, linear", "knn": "h, 20 neighbours"}.get(key, "z, linear")
                axis.plot(at, mean, marker="o", color=style.COLOURS[i], label=text)
                low, high = mean - spread, mean + spread
                axis.fill_between(at, low, high, color=style.COLOURS[i], alpha=0.2, linewidth=0)
            style.label(axis, x, y, title)
            if x == "width":
                axis.set_xscale("log", base=2)
            else:
                axis.set_xticks(at)
        row[2].set_ylim(top=row[2].get_ylim()[1] + 0.4 * np.ptp(row[2].get_ylim()))
        row[2].legend(loc="upper left")
    return canvas
