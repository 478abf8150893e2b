"""Fig. 10: the larger the rotation, the more directions it spans.

Paper: cosentino2022, App. E, Fig. 10: the rank of the covariance of 500 rotated versions of a
one-hot picture of 32 x 32, angles uniform between 0 and a largest one; mean and deviation of 5
runs.

Judged: for a fixed pixel the rank grows with the largest angle, up to the sampling of 500 draws. Of
a pixel at the centre it hardly grows: the circle that a pixel runs through decides.

Remark (ours): eq. (2) counts singular values above an absolute threshold. The same pictures in grey
levels 0 to 255 and 0 to 1 then have two ranks; relative to the largest value they have one.

Deviations: the paper gives neither interpolation nor threshold nor angles. Ours: bilinear, nothing
beyond the border; above 1e-3 of the largest singular value of the centred pictures; angles in
[-a/2, a/2], the paper's [0, a] up to one turn of the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

GROWS = Stated(
    "G10.grows",
    "the rank of rotated one-hot pictures grows with the largest angle, for a fixed pixel",
    "App. E, Fig. 10",
    "the larger the transformation, the higher the rank",
    "mean(largest_fall) < 0.02 and mean(growth) > 5",
    kind="empirical",
)
RADIUS = Stated(
    "G10.radius",
    "at the largest angle, a pixel farther from the centre spans more",
    "App. E (not said)",
    "a random pixel",
    "rank_near < rank_far",
    kind="remark",
)
CLAIMS = (GROWS, RADIUS)


@dataclass(frozen=True)
class Settings:
    """Pictures and angles.

    Args:
        seeds: a pixel and 500 angles each; 5 runs in Fig. 10.
        size: 32 in Fig. 10.
        n: 500 in Fig. 10.
        degrees: largest angles; ours.
        radius: pixels from the centre, at least, of the random pixel; nearer ones hardly move.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    size: int = 32
    n: int = 500
    degrees: tuple[float, ...] = (1.0, 5.0, 10.0, 20.0, 45.0, 90.0, 135.0, 180.0, 270.0, 360.0)
    radius: float = 6.0


QUICK = Settings(seeds=(0, 1), n=200, degrees=(1.0, 20.0, 90.0, 360.0))
LAPTOP = Settings()
PAPER = Settings()


def one_hot(settings: Settings, row: int, column: int) -> Tensor:
    """A picture of one white pixel."""
    picture = torch.zeros(1, 1, settings.size, settings.size, dtype=torch.float64)
    picture[0, 0, row, column] = 1.0
    return picture


def pixel(settings: Settings, seed: int) -> tuple[int, int]:
    """A random pixel inside the circle that stays in the picture, not too near its centre."""
    draw = torch.Generator().manual_seed(seed)
    middle = (settings.size - 1) / 2
    while True:
        row, column = torch.randint(settings.size, (2,), generator=draw).tolist()
        distance = ((row - middle) ** 2 + (column - middle) ** 2) ** 0.5
        if settings.radius <= distance <= middle - 1:
            return row, column


def rotated(settings: Settings, place: tuple[int, int], degrees: float, seed: int) -> Tensor:
    """Rotated versions as rows."""
    turn = cs.views.RigidMotion(angle=float(torch.tensor(degrees).deg2rad()) / 2, shift=0.0)
    pictures = one_hot(settings, *place).expand(settings.n, -1, -1, -1)
    return turn(pictures, range(settings.n), seed)[0].flatten(1)


def ranks(settings: Settings, seed: int) -> dict[str, Any]:
    """Ranks of one pixel at all angles; near and far ones; and the threshold."""
    place = pixel(settings, seed)
    rank = cs.diagnostics.numerical_rank
    at = {degrees: rotated(settings, place, degrees, seed) for degrees in settings.degrees}
    most = settings.degrees[-1]
    middle = settings.size // 2
    near = rotated(settings, (middle, middle + 2), most, seed)
    far = rotated(settings, (middle, settings.size - 3), most, seed)
    grey = at[most]
    absolute = [cs.diagnostics.absolute_rank(x, 1.0, centred=True) for x in (grey, 255 * grey)]
    return {
        "place": list(place),
        "ranks": [rank(rows) for rows in at.values()],
        "near": rank(near),
        "far": rank(far),
        "absolute": absolute,
        "relative": [rank(grey), rank(255 * grey)],
        "shown": rotated(settings, place, 90.0, seed).sum(dim=0).tolist(),
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """A pixel for each seed."""
    rows = [keep(f"pixel {seed}", lambda s=seed: ranks(settings, s)) for seed in settings.seeds]
    return {"degrees": list(settings.degrees), "size": settings.size, "rows": rows}


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Growth and radius."""
    rows = result["rows"]
    falls = [
        max(a - b for a, b in zip(row["ranks"], row["ranks"][1:], strict=False)) / max(row["ranks"])
        for row in rows
    ]
    return [
        GROWS.judge(
            largest_fall=falls,
            growth=[row["ranks"][-1] / max(1, row["ranks"][0]) for row in rows],
        ),
        RADIUS.judge(
            rank_near=[row["near"] for row in rows], rank_far=[row["far"] for row in rows]
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Fig. 10, and what 90 degrees of rotation make of one pixel."""
    canvas, axes = style.canvas(1, 2, width=3.6)
    rank, shown = axes[0]
    rows = torch.tensor([row["ranks"] for row in result["rows"]], dtype=torch.float64)
    mean, spread = rows.mean(dim=0), rows.std(dim=0, correction=0)
    rank.plot(result["degrees"], mean, marker="o", color=style.COLOURS[0])
    low, high = (mean - spread).tolist(), (mean + spread).tolist()
    rank.fill_between(result["degrees"], low, high, color=style.COLOURS[0], alpha=0.2, linewidth=0)
    rank.set_ylim(bottom=0)
    style.label(rank, "largest angle, degrees", "rank of the covariance", "mean and deviation")
    picture = torch.tensor(result["rows"][0]["shown"]).view(result["size"], -1)
    shown.imshow(picture.numpy(), cmap="Greys")
    shown.grid(False)
    style.label(shown, "column", "row", "one pixel, up to 90 degrees")
    return canvas
