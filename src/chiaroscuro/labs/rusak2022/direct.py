"""App. E, Fig. 4: DirectCLR has a projector after all, the last block.

Paper: rusak2022, App. E, eq. (28), Fig. 4, on DirectCLR [jing2022directclr]: no projector, the loss
sees the first d dimensions of the representation r = h + conv(h), where h is the layer before the
last block. The paper finds that weight decay drives the weights of conv for all other dimensions to
zero, so that r is conv's output beside a part of h, and that a linear readout of h beats one of r.

Judged: the weights of the last layer for unused dimensions shrink as decay alone would have it, and
those for used ones do not; r equals h where they vanished (eq. 28); the readout of h against r.

When: unused weights fall by about exp(-sum lr wd / (1 - momentum)), and a BatchNorm after it, as
ResNets have it, divides by their size: r = h needs them to vanish against its epsilon, 1e-5, which
takes an exponent of about 9, where 3 would make the weights look small. This lab has one of at
least 10 at the laptop scale. The paper does not say this; its 800 epochs may have been enough.

Results. Unused weights fall as decay alone has it, to six digits of the exponent, 15.8 (the
first-order form gives 11.7 at so large a decay; the comparison was first made with that one and
failed), and r = h past d. C8.readout is inconclusive: h is read half a point worse than r after
10,000 images (-1.3 to 0.3), 0.1 better after all 50,000 (-0.2 to 0.4; `long`), and the paper's 1.5
points have a spread of 1.8. r is h but for the 24 used dimensions of 128, and these add little.

Letters: the paper's h is the layer before the last block; our encoder's output is its r. Deviations
at the laptop scale: ResNet(depth=18, width=0.25, stem='strided'), whose last block has a shortcut
that is the identity; d = 24 of 128 (360 of 2048); SGD with momentum 0.9 and a decay of 0.05 chosen
for the exponent; 10,000 pictures of CIFAR-10 (ImageNet there), else wandering digits. At `long`:
all 50,000 for six epochs, so that a fifth of that decay has the same exponent; views of 24 pixels,
read on all 10,000 test pictures; three other seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Stated, at_once, style
from chiaroscuro.labs.trained import here, trained

__all__ = ["CLAIMS", "LAPTOP", "LONG", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

ENOUGH = "n_seeds >= 3 and exponent >= 9"
DECAYED = Stated(
    "C8.decayed",
    "the last layer's weights for dimensions without loss fall as decay alone has it: exp(-x) of "
    "them is left, for an exponent x as large as one likes",
    "App. E, Fig. 4",
    "all weights past d are driven to zero",
    "off_decay < 1e-4",
)
CONCATENATED = Stated(
    "C8.concatenated",
    "r is conv's output beside a part of h: past d, r = h",
    "App. E, eq. (28)",
    "r = cat(h[:d] + conv(h), h[d:])",
    "difference < 0.01",
    enough=ENOUGH,
)
READOUT = Stated(
    "C8.readout",
    "a linear readout of h beats one of r",
    "App. E",
    "63.1 +- 0.9 against 61.6 +- 1.6",
    "mean(h_minus_r) > 0",
    effect="h_minus_r = 0.015 +- 0.018",  # sqrt(0.9^2 + 1.6^2) points
    enough=ENOUGH,
)
CLAIMS = (DECAYED, CONCATENATED, READOUT)


@dataclass(frozen=True)
class Settings:
    """DirectCLR.

    Args:
        seeds: of weights, order and views.
        source: ImageNet in DirectCLR; a second choice where it is not on the machine.
        fallback: that second choice.
        preset: of what is not said here.
        sets: over the preset.
        d: dimensions that the loss sees, 360 of 2048 in App. E.
        block: the last block, by its name in the network.
        layer: its last convolution.
        weight_decay: chosen for the exponent; 1e-4 and 800 epochs in DirectCLR.
        lr, momentum: of SGD.
        epochs: of each training.
        rows: pictures of which h and r are compared.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    source: str = "cifar10_12k"
    fallback: str = "digits(renderings=(4, 4))"
    preset: str = "directclr"
    sets: tuple[str, ...] = (
        "network.encoder=ResNet(depth=18, width=0.25, stem='strided')",
        "batch=64",
        "schedule.warmup=0.5",
    )
    d: int = 24
    block: str = "layer4.1"
    layer: str = "conv2"
    weight_decay: float = 0.05
    lr: float = 0.05
    momentum: float = 0.9
    epochs: int = 6
    rows: int = 1024


QUICK = Settings(
    seeds=(0,),
    source="digits(renderings=(1, 1), test=0.8)",
    sets=(
        "network.encoder=ResNet(depth=18, width=0.125, stem='strided')",
        "batch=64",
        "schedule.warmup=0",
    ),
    d=16,
    epochs=1,
    rows=200,
)
LAPTOP = Settings()
LONG = Settings(
    seeds=(3, 4, 5),
    source="cifar10",
    fallback="cifar10_12k",
    sets=(*LAPTOP.sets, "views.first=SimCLR(size=24, strength=0.5)"),
    weight_decay=0.01,
    epochs=6,
)
PAPER = Settings(
    source="cifar10",
    sets=(),
    d=360,
    block="layer4.2",
    layer="conv3",
    weight_decay=1e-4,
    lr=0.3,
    epochs=800,
)


def training(settings: Settings, seed: int) -> Any:
    """The settings of one training."""
    source = settings.source if here(settings.source) else settings.fallback
    loss = "InfoNCE(kernel=Cosine(tau=0.1), negatives=OtherView())"
    return cs.engine.read_settings(
        settings.preset,
        [
            *settings.sets,
            f"objective=OnDims({loss}, 0, {settings.d})",
            f"optimiser={{name = 'sgd', lr = {settings.lr}, momentum = {settings.momentum}, "
            f"weight_decay = {settings.weight_decay}}}",
            f"data.source={source}",
            f"epochs={settings.epochs}",
            f"seed={seed}",
        ],
    )


def sizes(networks: Any, settings: Settings) -> np.ndarray:
    """Mean absolute weight of the last layer, by dimension of r (Fig. 4)."""
    block = networks.encoders[0].get_submodule(settings.block)
    weight = block.get_submodule(settings.layer).weight.detach()
    return weight.abs().flatten(1).mean(dim=1).numpy()


def before_and_after(networks: Any, asked: Any, settings: Settings, data: Any) -> Any:
    """h, the mean over positions before the last block, and r, after it, of all rows."""
    encoder = networks.encoders[0].eval()
    stage, number = settings.block.rsplit(".", 1)
    previous = f"{stage}.{int(number) - 1}"
    hs, rs = [], []
    with torch.no_grad():
        for start in range(0, len(data), 256):
            rows = np.arange(start, min(start + 256, len(data)))
            x = cs.engine.plain(data, rows, 0, asked.views.objects()[0])
            activations = cs.models.features(encoder, x, [previous, settings.block])
            hs.append(activations[previous].mean((2, 3)))
            rs.append(activations[settings.block].mean((2, 3)))
    return torch.cat(hs).numpy(), torch.cat(rs).numpy()


def exponent(asked: Any, steps: int) -> float:
    """The exponent by which weights w without a gradient fall under SGD with momentum.

    v <- momentum v + wd w,  w <- w - lr v: about sum lr wd / (1 - momentum) while that is small.
    """
    o, per_epoch = asked.optimiser, steps // asked.epochs
    w, v, fallen = 1.0, 0.0, 0.0
    for step in range(steps):
        v = o.momentum * v + o.weight_decay * w
        w -= o.lr * asked.schedule.factor(step, steps, per_epoch) * v
        size = abs(w)  # under a large decay it swings through zero
        fallen, w, v = fallen - math.log(size), w / size, v / size
    return fallen


def measured(settings: Settings, seed: int) -> dict[str, Any]:
    """Train; weights, eq. (28) and the two readouts."""
    asked = training(settings, seed)
    at_start = cs.engine.build(asked.network, asked.seed)
    start = sizes(at_start, settings)
    networks, _ = trained(asked, lambda networks, epoch: None)
    end = sizes(networks, settings)
    data = cs.data.open_data(asked.data.source)
    h, r = before_and_after(networks, asked, settings, data)
    side, labels = np.asarray(data.split), np.asarray(data.labels)
    part = lambda x, s: cs.diagnostics.Labelled(x[side == s], labels[side == s])
    read = lambda x: cs.diagnostics.ridge_probe(part(x, 0), part(x, 1))
    d = settings.d
    gone = np.abs(r[:, d:] - h[:, d:]).mean() / np.abs(h[:, d:]).mean()
    steps = asked.epochs * ((side == 0).sum() // asked.batch)
    return {
        "d": d,
        "start": [float(f"{x:.4g}") for x in start],
        "end": [float(f"{x:.4g}") for x in end],
        "unused_left": float(end[d:].mean() / start[d:].mean()),
        "used_over_unused": float(end[:d].mean() / max(float(end[d:].mean()), 1e-30)),
        "exponent": exponent(asked, int(steps)),
        "difference": float(gone),
        "h": read(h),
        "r": read(r),
        "z": read(r[:, :d]),
        "rank_h": cs.diagnostics.effective_rank(h[: settings.rows]),
        "rank_r": cs.diagnostics.effective_rank(r[: settings.rows]),
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """A piece for each seed."""
    return {
        "runs": [
            keep(f"seed {seed}", lambda s=seed: measured(settings, s)) for seed in settings.seeds
        ]
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Weights, eq. (28), readout."""
    runs = result["runs"]
    of = lambda name: [one[name] for one in runs]
    many = {"n_seeds": len(runs), "exponent": of("exponent")}
    off = [abs(math.log(one["unused_left"]) / one["exponent"] + 1) for one in runs]
    gain = [one["h"] - one["r"] for one in runs]
    return [
        DECAYED.judge(
            unused_left=of("unused_left"),
            used_over_unused=of("used_over_unused"),
            off_decay=off,
            **many,
        ),
        CONCATENATED.judge(difference=of("difference"), **many),
        READOUT.judge(h_minus_r=gain, h=of("h"), r=of("r"), **many),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Fig. 4, and the readouts."""
    canvas, axes = style.canvas(1, 2, width=3.8)
    weights, readout = axes[0]
    first = result["runs"][0]
    floor = lambda values: [max(x, 1e-12) for x in values]
    weights.semilogy(floor(first["start"]), color=style.GREY, label="start")
    weights.semilogy(floor(first["end"]), color=style.COLOURS[0], label="end")
    weights.axvline(first["d"] - 0.5, color="#000000", linewidth=1)
    weights.legend(loc="best")
    style.label(weights, "dimension of r", "mean |weight| of the last layer", "Fig. 4, one seed")
    for i, (name, text) in enumerate((("h", "h"), ("r", "r"), ("z", "r[:d]"))):
        y = [one[name] for one in result["runs"]]
        readout.plot([i] * len(y), y, "o", color=style.COLOURS[i], alpha=0.7)
        readout.plot([i], [np.mean(y)], "_", ms=18, color=style.COLOURS[i], label=text)
    readout.set_xticks(range(3), ["h", "r", "r[:d]"])
    style.label(
        readout, "what is read", "accuracy, linear", "before, after, and what the loss sees"
    )
    return canvas
