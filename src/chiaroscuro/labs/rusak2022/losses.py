"""Table 1: the loss of the true inverse, of a trained encoder, and of both at their best scale.

Paper: rusak2022, Table 1. For f = g^-1 and for a trained f: the alignment term, the uniformity term
and their sum, at tau = 1 with M = 10^4 negatives, the uniformity as the log of the *sum* over them.

Closed forms for f = g^-1, d = 10:

    box     log M + d int_0^1 log[(sqrt(pi)/2) (erf x + erf(1-x))] dx  = 7.70,   k = exp(-|z-w|^2)
    sphere  log M + log[Gamma(d/2) 2^(d/2-1) I_(d/2-1)(1)]             = 9.26,   k = exp(z.w)

and for the alignment on the sphere, with conditionals that stay on it, -(d_c + d_s A(kappa)) / d,
where A(kappa) is the mean cosine in the style block.

The table prints 7.69 for the first: one of its samples of 10^4 is that far from 7.70. The bounds of
C5.uniform_box were set around the closed form after a quick run had given 7.700. A first laptop run
had 1000 steps, half of those of C4; there one seed of three stayed above the best scale of g^-1
(4.51 against 4.44, C5.scaled). It was run again with the steps of C4.

Remarks (ours). The table does not say d_c nor the width of style. Its -0.19 +- 0.32 for the
alignment of g^-1 on the sphere fits one content dimension and style that is all but independent in
a pair (A = 0.1, kappa = 0.9); with d_c = 5 and informative style it would be below -0.5. C5.margin
trains in that setting. And the box's comparison is one of scales: no scale of g^-1 is tried but 1.
We try all, for g^-1 and for the content alone.

Results. In the setting of the table a trained encoder is 0.50 below g^-1 on the sphere after 16,000
steps (0.34 to 0.65), after 2,000 it was 0.27; the table has 0.75. The margin still grows with the
steps, so that C5.margin fails at this length of training.

Deviations: one sample of latents serves all seeds, which are three mixings and starts; d_c, the
conditionals' widths and the training are ours, as in C4; box and sphere, the
latter with the norm.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import integrate, special
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Remark, Stated, at_once, style
from chiaroscuro.labs.rusak2022 import layers

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

BOX = Stated(
    "C5.uniform_box",
    "f = g^-1 on the box: the uniformity term is its closed form, and the table's",
    "Table 1, row 1",
    7.69,
    "error < 0.03 and closed_form > 7.67 and closed_form < 7.71",
)
SPHERE = Stated(
    "C5.uniform_sphere",
    "f = g^-1 on the sphere: the uniformity term is its closed form, and the table's",
    "Table 1, row 1",
    9.26,
    "error < 0.01 and closed_form > 9.25 and closed_form < 9.27",
)
ALIGN = Remark(
    "C5.align_sphere",
    "Table 1, row 1: align -0.19 +- 0.32, with content of unstated dimension",
    "content kept and informative style (mean cosine of 1/2 or more) give an alignment of -0.19.",
    "distance < 0.01",
    "alignment is -(d_c + d_s A)/d, and -0.19 needs d_c = 1 and A = 0.1, as one reading of "
    "the table.",
    "error < 0.02 and distance < 0.01",
)
TRAINED = Stated(
    "C5.trained",
    "the trained encoder has a lower loss than f = g^-1, on the box and on the sphere",
    "Table 1",
    "0.89 < 7.71 and 8.32 < 9.07",
    "mean(box_margin) > 0 and mean(sphere_margin) > 0",
    enough="steps >= 2000",
    effect="box_margin = 6.82 and sphere_margin = 0.75",
)
MARGIN = Stated(
    "C5.margin",
    "on the sphere, with one content dimension and style all but free in a pair (the reading "
    "under which g^-1 has the table's alignment), the margin is more than half of the table's",
    "Table 1, sphere",
    "9.07 - 8.32 = 0.75",
    "mean(margin) > 0.375",
    enough="steps >= 16_000",
    effect="margin = 0.75",
)
COLLAPSED = Stated(
    "C5.collapsed",
    "on the box, content alone at its best scale has a lower loss than g^-1 at its best scale",
    "Table 1, caption: collapsed have a lower loss than the intended solutions",
    "lower",
    "collapsed < inverse",
)
SCALED = Stated(
    "C5.scaled",
    "on the box, the trained encoder is below g^-1 even at the best scale of g^-1",
    "Table 1, with the scale left free (ours)",
    "not tried",
    "trained < inverse",
    enough="steps >= 2000",
)
CLAIMS = (BOX, SPHERE, ALIGN, TRAINED, MARGIN, COLLAPSED, SCALED)


@dataclass(frozen=True)
class Settings:
    """Process and training, as in C4.

    Args:
        seeds: as in C4.
        d: 10. m: 10^4 negatives [Table 1]. anchors: over which the terms are means.
        content, std, kappa, depth_g, depth, width, tau_content, steps, batch, lr, rows: as in C4.
        tau: 1, of both spaces [Table 1]. tau_sphere: 1 too.
        content_table, kappa_table: of the reading of Table 1 under which align is -0.19.
        steps_table: of Adam, there; style that is all but free is learnt slowly.
        scales: factors tried, as powers of 10: from, to and how many.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    d: int = 10
    m: int = 10_000
    anchors: int = 2000
    content: int = 5
    std: float = 0.25
    kappa: float = 5.0
    depth_g: int = 3
    depth: int = 7
    width: int = 64
    tau: float = 1.0
    tau_sphere: float = 1.0
    tau_content: float = 1.0
    steps: int = 2000
    batch: int = 256
    lr: float = 2e-3
    rows: int = 4000
    content_table: int = 1
    kappa_table: float = 0.9
    steps_table: int = 16_000
    scales: tuple[float, float, int] = (-0.5, 3.5, 33)


QUICK = Settings(
    seeds=(0,), m=2000, anchors=1500, depth=4, width=32, steps=15, batch=64, steps_table=15,
    scales=(-0.5, 3.5, 5),
)  # fmt: skip
LAPTOP = Settings()
PAPER = Settings(
    seeds=tuple(range(5)), width=200, steps=100_000, batch=5120, lr=1e-4, anchors=10_000,
    steps_table=100_000,
)  # fmt: skip


def closed_forms(d: int, m: int) -> dict[str, float]:
    """The uniformity of f = g^-1, as the log of the sum over m negatives."""
    inside = lambda x: math.log(math.sqrt(math.pi) / 2 * (math.erf(x) + math.erf(1 - x)))
    order = d / 2 - 1
    bessel = math.lgamma(d / 2) + order * math.log(2) + math.log(special.iv(order, 1.0))
    return {
        "box": math.log(m) + d * integrate.quad(inside, 0, 1)[0],
        "sphere": math.log(m) + bessel,
    }


def terms(z: Tensor, z2: Tensor, negatives: Tensor, sphere: bool) -> dict[str, float]:
    """Alignment, uniformity and total; the log of the sum over the negatives alone, as printed."""
    kernel = cs.Dot(tau=1.0) if sphere else cs.Lp(p=2, tau=1.0)
    align = -kernel.log_paired(z, z2)
    uniform = torch.cat(
        [torch.logsumexp(kernel.log(part, negatives), dim=1) for part in z.split(500)]
    )
    return {
        "align": float(align.mean()),
        "uniform": float(uniform.mean()),
        "total": float((align + uniform).mean()),
        "align_std": float(align.std()),
        "uniform_std": float(uniform.std()),
    }


def mean_cosine(k: int, kappa: float) -> float:
    """A(kappa) of von Mises and Fisher in R^k."""
    return float(special.ive(k / 2, kappa) / special.ive(k / 2 - 1, kappa)) if kappa else 0.0


def sample(settings: Settings, source: Any) -> tuple[Any, np.ndarray]:
    """Pairs and negatives of a process, by their latents."""
    return source.sample(settings.anchors, seed=2**31), source.latents(settings.m, seed=2**31 + 1)


def inverse(settings: Settings, space: str, seed: int) -> dict[str, float]:
    """The terms of f = g^-1, through g and back."""
    source = layers.process(settings, space, seed)
    pairs, negatives = sample(settings, source)
    z, z2, w = (
        torch.from_numpy(source.invert(x)) for x in (pairs.x1, pairs.x2, source.observe(negatives))
    )
    return terms(z, z2, w, space == "sphere")


def learnt(settings: Settings, space: str, seed: int) -> dict[str, float]:
    """The terms of a trained encoder, and eq. (1) of the box with the positive."""
    sphere = space == "sphere"
    f, source = layers.trained(settings, space, sphere, "one", seed)
    pairs, negatives = sample(settings, source)
    embedded = []
    with torch.no_grad():
        for x in (pairs.x1, pairs.x2, source.observe(negatives)):
            z = f(torch.from_numpy(x).float()).double()
            embedded.append(z / z.norm(dim=1, keepdim=True) if sphere else z)
    z, z2, w = embedded
    return {**terms(z, z2, w, sphere), "with_positive": with_positive(z[:1000], z2[:1000], w)}


def scaled(settings: Settings, seed: int) -> dict[str, Any]:
    """The loss of a g^-1 and of its content alone, against the scale a, on the box."""
    source = layers.process(settings, "box", seed)
    pairs, negatives = sample(settings, source)
    # the positive is a candidate, as in eq. (1): without it the total has no lower bound
    arrays = [torch.from_numpy(a[:1000]) for a in (pairs.z1, pairs.z2)]
    arrays.append(torch.from_numpy(negatives))
    scales = np.logspace(*settings.scales[:2], int(settings.scales[2]))
    losses: dict[str, Any] = {"scales": scales.tolist(), "inverse": [], "collapsed": []}
    for a in scales:
        for name, stop in (("inverse", settings.d), ("collapsed", settings.content)):
            z, z2, w = (float(a) * x[:, :stop] for x in arrays)
            losses[name].append(with_positive(z, z2, w))
    return losses


def with_positive(z: Tensor, z2: Tensor, negatives: Tensor) -> float:
    """Eq. (1) for boxes: the positive among the candidates."""
    kernel = cs.Lp(p=2, tau=1.0)
    attract = kernel.log_paired(z, z2)
    repel = torch.cat([torch.logsumexp(kernel.log(part, negatives), 1) for part in z.split(500)])
    return float((torch.logaddexp(attract, repel) - attract).mean())


def alignment(settings: Settings) -> dict[str, Any]:
    """-(d_c + d_s A)/d over d_c and A: the distance to the table's -0.19."""
    d, printed = settings.d, -0.19
    value = lambda c, A: -(c + (d - c) * A) / d
    grid = np.linspace(0, 1, 1001)
    near = lambda contents, least: float(
        min(abs(value(c, A) - printed) for c in contents for A in grid[grid >= least])
    )
    return {
        "informative": near(range(1, d), 0.5),
        "one_content": near([1], 0.0),
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """The table, the closed forms, and the scales."""
    result: dict[str, Any] = {
        "steps": settings.steps,
        "steps_table": settings.steps_table,
        "closed": closed_forms(settings.d, settings.m),
        "closed_table": closed_forms(10, 10_000),
        "alignment": alignment(settings),
        "align_closed": -(
            settings.content
            + (settings.d - settings.content)
            * mean_cosine(settings.d - settings.content, settings.kappa)
        )
        / settings.d,
    }
    for space in ("box", "sphere"):
        result[f"{space}, inverse"] = [
            keep(f"{space} inverse {s}", lambda sp=space, s=s: inverse(settings, sp, s))
            for s in settings.seeds
        ]
        result[f"{space}, trained"] = [
            keep(f"{space} trained {s}", lambda sp=space, s=s: learnt(settings, sp, s))
            for s in settings.seeds
        ]
    table = dataclasses.replace(
        settings,
        content=settings.content_table,
        kappa=settings.kappa_table,
        steps=settings.steps_table,
    )
    for who, one in (("inverse", inverse), ("trained", learnt)):
        result[f"table, {who}"] = [
            keep(f"table {who} {s}", lambda f=one, s=s: f(table, "sphere", s))
            for s in settings.seeds
        ]
    result["scaled"] = [
        keep(f"scaled {s}", lambda s=s: scaled(settings, s)) for s in settings.seeds
    ]
    return result


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """The two closed forms, the alignment on the sphere, and the orders of losses."""
    of = lambda case, what: [row[what] for row in result[case]]
    off = lambda space: [
        abs(x - result["closed"][space]) for x in of(f"{space}, inverse", "uniform")
    ]
    align = of("sphere, inverse", "align")
    margin = lambda case: [
        a - b
        for a, b in zip(
            of(f"{case}, inverse", "total"), of(f"{case}, trained", "total"), strict=True
        )
    ]
    steps = result["steps"]
    best = {name: [min(row[name]) for row in result["scaled"]] for name in ("inverse", "collapsed")}
    return [
        BOX.judge(error=off("box"), closed_form=result["closed_table"]["box"]),
        SPHERE.judge(error=off("sphere"), closed_form=result["closed_table"]["sphere"]),
        ALIGN.judge(
            expected={"distance": result["alignment"]["informative"]},
            ours={
                "error": [abs(x - result["align_closed"]) for x in align],
                "distance": result["alignment"]["one_content"],
            },
        ),
        TRAINED.judge(
            box_margin=margin("box"),
            sphere_margin=margin("sphere"),
            box=of("box, trained", "total"),
            box_inverse=of("box, inverse", "total"),
            sphere=of("sphere, trained", "total"),
            sphere_inverse=of("sphere, inverse", "total"),
            steps=steps,
        ),
        MARGIN.judge(
            margin=margin("table"),
            trained=of("table, trained", "total"),
            inverse=of("table, inverse", "total"),
            align_inverse=of("table, inverse", "align"),
            align_trained=of("table, trained", "align"),
            steps=result["steps_table"],
        ),
        COLLAPSED.judge(collapsed=best["collapsed"], inverse=best["inverse"]),
        SCALED.judge(
            trained=of("box, trained", "with_positive"), inverse=best["inverse"], steps=steps
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Table 1 as bars beside the paper's numbers, and the loss against the scale."""
    canvas, axes = style.canvas(1, 3, width=3.1)
    paper = {
        "box": {"inverse": (0.02, 7.69, 7.71), "trained": (0.23, 0.66, 0.89)},
        "sphere": {"inverse": (-0.19, 9.26, 9.07), "trained": (-0.97, 9.29, 8.32)},
    }
    for axis, space in zip(axes[0], ("box", "sphere"), strict=False):
        for i, who in enumerate(("inverse", "trained")):
            rows = result[f"{space}, {who}"]
            values = [
                sum(row[what] for row in rows) / len(rows) for what in ("align", "uniform", "total")
            ]
            places = [x + 0.4 * i - 0.2 for x in range(3)]
            text = "$f = g^{-1}$" if who == "inverse" else "trained"
            axis.bar(places, values, 0.36, color=style.COLOURS[i], label=text)
            said = "paper" if i == 1 else None
            axis.plot(places, paper[space][who], "_", color="black", markersize=13, label=said)
        axis.axhline(0, color=style.GREY, linewidth=0.6)
        axis.set_xticks(range(3), ["align", "uniform", "total"])
        axis.margins(y=0.35)
        axis.legend(loc="upper left")
        style.label(axis, "term", "nats", space)
    scale, row = axes[0][2], result["scaled"][0]
    scale.plot(row["scales"], row["inverse"], "o-", label="$a\\, g^{-1}$")
    scale.plot(row["scales"], row["collapsed"], "s-", label="$a$ times the content alone")
    reached = result["box, trained"][0]["with_positive"]
    scale.axhline(reached, color="black", linestyle=":", label="trained")
    scale.set_xscale("log")
    scale.set_yscale("symlog", linthresh=0.1)
    scale.set_ylim(bottom=-0.03)
    scale.legend(loc="upper left")
    style.label(scale, "scale $a$", "eq. (1), box", "the scale is free")
    return canvas
