"""Sec. 4: LaCLIP, several captions a picture, against CLIP, one.

Paper: tan2024, Sec. 4, after Thm 4.2: LaCLIP [fan2023laclip] trains on rewrites of the captions, so
its pair graph has more nodes and more clusters on the side of the texts, and it should bring the
two sides closer than CLIP. The paper ran no experiment of its own.

Judged on emoji, each with several captions: the same network, data, views and steps, with the
original caption always (CLIP) or with any of them (LaCLIP); asked about emoji of the held-out side,
whose base no training picture shows.

On seeds 0 to 2, in a benchmark before this lab, the first did not hold: LaCLIP was below CLIP by 2
to 5 points of recall. The likely reason, not tested on its own: at 495 steps CLIP had fitted its
captions (loss 0.8) and LaCLIP had not (2.2). An original caption is one of about three, so LaCLIP
sees each a third as often; its other steps go into other wordings, which questions in the original
words do not ask for. On the same seeds it was ahead where any wording may ask for a picture. The
second rule was written after that look, so both are judged on later seeds, which nobody had seen.
Whether more steps would turn the first is not judged here.

Results. On seeds 6 to 8, run again to keep the curves: asked with the original caption LaCLIP and
CLIP find the picture alike (0.4 points of recall below, -3.1 to 2.2; on seeds 3 to 5 it was 3
below); asked in other words LaCLIP is 12 to 16 points above on each seed. What rewrites teach is
other wordings.

Letters: z1 are pictures, z2 texts. Deviations: 1,528 small pictures and their tags and descriptions
as rewrites, where LaCLIP has millions and a language model's; a text transformer on bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

ENOUGH = "n_seeds >= 3 and steps >= 400"
ORIGINAL = Stated(
    "S3.rewrites",
    "asked with the original caption, rewrites beat none at equal steps",
    "Sec. 4: LaCLIP shall cluster similar objects across modalities better than CLIP",
    "better",
    "mean(gain) > 0",
    enough=ENOUGH,
)
REWORDED = Stated(
    "S3.reworded",
    "asked with a caption in other words, rewrites find the picture more often than none at equal "
    "steps",
    "Sec. 4: text augmentation expands the text side of the pair graph",
    "better",
    "mean(gain) > 0",
    enough=ENOUGH,
)
CLAIMS = (ORIGINAL, REWORDED)

METHODS = {"CLIP": "emoji-clip", "LaCLIP": "emoji-laclip"}
WAYS = ("image_to_text", "text_to_image")


@dataclass(frozen=True)
class Settings:
    """Two trainings a seed.

    Args:
        seeds: seeds 0 to 2 were looked at before the second rule was written.
        sets: over the presets `emoji-clip` and `emoji-laclip`, for both alike.
    """

    seeds: tuple[int, ...] = (6, 7, 8)
    sets: tuple[str, ...] = ()


QUICK = Settings(seeds=(3,), sets=("epochs=1", "schedule.warmup=0.0"))
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(6, 16)), sets=("epochs=450",))


def trained(settings: Settings, method: str, seed: int) -> dict[str, Any]:
    """One network: how far it came, and where the right answers stand among the held-out."""
    chosen = cs.engine.read_settings(METHODS[method], [*settings.sets, f"seed={seed}"])
    run = cs.train(chosen)
    networks, last = run.networks, run.history().records[-1]
    data = cs.data.open_data(chosen.data.source).part("test")
    captions = data.column("captions")
    images = torch.as_tensor(cs.embed(networks, data, views=chosen.views).z1)
    first = texts(networks, [row[0] for row in captions])
    other = [(i, text) for i, row in enumerate(captions) for text in row[1:] if text != row[0]]
    owner = np.array([i for i, _ in other])
    reworded = texts(networks, [text for _, text in other])
    original = cs.diagnostics.retrieval(images, first)
    return {
        "steps": last["step"],
        "loss": last["mean_loss"],
        "original": {way: original[way] for way in WAYS},
        "reworded": ranks(reworded, images, owner),
        "n": len(data),
    }


def texts(networks: Any, captions: list[str]) -> torch.Tensor:
    """Projections of texts, of norm 1."""
    with torch.no_grad():
        x = cs.engine.tokens(captions)
        z = torch.cat([networks.project(networks.encode(b, 1), 1) for b in x.split(256)])
    return z / z.norm(dim=1, keepdim=True)


def ranks(queries: torch.Tensor, images: torch.Tensor, owner: np.ndarray) -> dict[str, float]:
    """Each text among all pictures: how often its own is first, and among the first ten."""
    images = images / images.norm(dim=1, keepdim=True)
    s = queries @ images.T
    own = s[torch.arange(len(s)), torch.from_numpy(owner)]
    ahead = (s > own[:, None]).sum(dim=1)
    return {
        "recall_1": float((ahead < 1).double().mean()),
        "recall_10": float((ahead < 10).double().mean()),
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Both methods on every seed."""
    result: dict[str, Any] = {"missing": "", "n_seeds": len(settings.seeds), "runs": {}}
    try:
        cs.data.open_data("emoji")
    except cs.InputError as error:
        return {**result, "missing": str(error)}
    result["runs"] = {
        method: [
            keep(f"{method} {seed}", lambda m=method, seed=seed: trained(settings, m, seed))
            for seed in settings.seeds
        ]
        for method in METHODS
    }
    return result


def both_ways(row: dict[str, Any], k: int) -> float:
    """Recall with original captions, the mean of both directions."""
    return float(np.mean([row["original"][way][f"recall_{k}"] for way in WAYS]))


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Original captions, and others."""
    if result["missing"]:
        return [one.not_run(result["missing"]) for one in CLAIMS]
    clip, laclip = result["runs"]["CLIP"], result["runs"]["LaCLIP"]
    pairs = list(zip(clip, laclip, strict=True))
    many = {
        "n_seeds": result["n_seeds"],
        "steps": min(row["steps"] for row in clip + laclip),
        "extra_steps": max(abs(a["steps"] - b["steps"]) for a, b in pairs),
    }
    recall = {
        "original": lambda row: both_ways(row, 10),
        "reworded": lambda row: row["reworded"]["recall_10"],
    }
    return [
        stated.judge(
            gain=[of(b) - of(a) for a, b in pairs],
            clip=float(np.mean([of(a) for a in clip])),
            laclip=float(np.mean([of(b) for b in laclip])),
            **many,
        )
        for stated, of in ((ORIGINAL, recall["original"]), (REWORDED, recall["reworded"]))
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Recall of both methods, seed by seed, by the wording of the question."""
    canvas, axes = style.canvas(1, 2, width=3.6)
    panels = {
        "asked with the original caption": both_ways,
        "asked in other words, text to image": lambda row, k: row["reworded"][f"recall_{k}"],
    }
    for axis, (title, of) in zip(axes[0], panels.items(), strict=True):
        for i, (method, rows) in enumerate(result["runs"].items()):
            for j, k in enumerate((1, 10)):
                values = [100 * of(row, k) for row in rows]
                at = j + (i - 0.5) * 0.36
                text = method if j == 0 else None
                axis.bar(at, np.mean(values), 0.32, color=style.COLOURS[i], alpha=0.5, label=text)
                axis.scatter([at] * len(values), values, s=14, color=style.COLOURS[i], zorder=2)
        if result["runs"]:
            axis.legend()
        axis.set_xticks(range(2), ["recall@1", "recall@10"])
        style.label(axis, "right answer among the first", "per cent", title)
    return canvas
