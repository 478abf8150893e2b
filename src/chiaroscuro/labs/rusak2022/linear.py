"""Fig. 1 left: singular values of a linear encoder, with content and without.

Paper: rusak2022, Sec. 4.1 (linear) and Fig. 1 left. Eight latents, d_c of them content; g linear, f
linear without bias, trained by InfoNCE in the box (unnormalised) and on the sphere (normalised).

Judged: without content the spectrum of W is flat, with d_c content dimensions exactly d_c singular
values are large; and what temperatures do.

Remarks (ours). With similarities *divided* by tau, the loss in the box sees W only through
T^(-1/2) W, T the diagonal of temperatures: they are a change of parameters, and the spectrum of
T^(-1/2) W, which is what the loss sees, collapses as before. Unequal temperatures also change the
level of tau, which in a training of so many steps moves the spectrum more than their order: the gap
after d_c = 2 singular values is 13.3 with one tau, 21.3 with one of a fifth and 7.9 with one five
times as large (means over the fresh seeds), while tau_c < tau_s leaves 9.7. So whatever unequal
temperatures do is held against one tau at the better of their two levels.

Sec. 3 has tau_c > tau_s, Sec. 4.1 and Fig. 1 tau_c < tau_s. C3.stands says which holds. For the
gradient near W = 0 Sec. 3 is right (C6.rule: content moves faster, and a larger tau_c slows it).
For the spectrum at the end the split is ill-posed: training turns W towards content in the rows of
lower tau, whichever are called content; C3.either measures both orders with the same two
temperatures. On the sphere, where T is no change of parameters, unequal temperatures cost rank even
without content. And in the linear case a readout shows nothing: an invertible W has R^2 = 1 of all
latents, however collapsed, so singular values are used.

Seeds 3 to 14 of earlier runs and 15 to 26 are pooled. With seeds 3 to 8 known, the levels were
added to the rules of C3.either, C3.effective and C3.rank and C3.stands was written; on seeds 9 to
14 C3.stands was open. These four are judged on the fresh seeds 15 to 26 alone, the other rules,
which are as they were, on all twenty-four. The paper's effect was stated for C3.tau later: "the
same spectrum as without content" is at least ten times as flat as with one tau.

Results. On the fresh seeds neither order of two temperatures flattens the spectrum of W at the end,
over one tau at the better of their levels (C3.stands): tau_c < tau_s leaves it 1.00 times as flat
(0.93 to 1.07 on all seeds, C3.tau fails). At the start the orders do differ: content grows 2.0
times as fast as style with one tau, 0.40 times with tau_c > tau_s, 10 times with tau_c < tau_s.

The first run counted large singular values by the largest *ratio* of neighbours, which is decided
by values near zero (C3.sphere failed so, by one encoder of nine); now it is the largest drop.

Deviations: the paper gives no widths of the conditionals, temperatures, batch or steps; ours are in
`Settings`. Style varies in a pair nearly as much as in the marginal: with a small variance or few
steps no collapse shows. g is orthogonal, so that the singular values of W are those of f g.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Remark, Stated, at_once, style
from chiaroscuro.labs.trained import fitted, linear

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

FLAT = Stated(
    "C3.flat",
    "without content the spectrum is flat: the largest singular value is below 1.5 of the smallest",
    "Fig. 1, left, d_c = 0",
    "flat",
    "mean(box) < 1.5 and mean(sphere) < 1.5",
    enough="steps >= 1000",
)
LARGE = Stated(
    "C3.large",
    "in the box with d_c content dimensions exactly d_c singular values are large",
    "Fig. 1, left, d_c = 1, 2, 4",
    "d_c large",
    "mean(counted_right) > 0.9 and mean(least_gap) > 2",
    enough="steps >= 1000",
)
SPHERE = Stated(
    "C3.sphere",
    "on the sphere with d_c content dimensions exactly d_c singular values are large, too",
    "Sec. 4.1, linear: cosine similarity",
    "d_c large",
    "mean(counted_right) > 0.9 and mean(least_gap) > 2",
    enough="steps >= 1000",
)
TAU = Stated(
    "C3.tau",
    "in the box tau_c < tau_s flattens the spectrum of W, over one tau at either level",
    "Fig. 1, left, dashed",
    "the same spectrum as without content",
    "mean(flatter_than_levels) > 1.2",
    enough="steps >= 1000",
    effect="flatter_than_levels = 10",  # without content W is at least ten times as flat
)
EITHER = Stated(
    "C3.either",
    "over one tau at the better of their levels, tau_c < tau_s (Sec. 4.1) narrows the gap after "
    "d_c singular values, and so does tau_c > tau_s (Sec. 3) with the same two values, by a factor "
    "within a quarter of it",
    "Sec. 3 and Sec. 4.1 (ours)",
    "not said",
    "mean(narrower) > 1 and mean(narrower_reversed) > 1 "
    "and mean(reversed_minus_split) > -0.25 and mean(reversed_minus_split) < 0.25",
    enough="steps >= 1000",
    kind="remark",
)
STANDS = Remark(
    "C3.stands",
    "Sec. 3 (tau_c > tau_s, C6.rule) against Sec. 4.1 (tau_c < tau_s, C3.tau)",
    "one of the two orders flattens the spectrum of W at the end, over one tau at the better of "
    "their levels.",
    "mean(flatter_by_an_order) > 1.2",
    "neither does, and it is at the start that an order matters: content grows faster than style "
    "near W = 0, tau_c > tau_s divides that lead by the ratio of the two, and tau_c < tau_s "
    "multiplies it.",
    "mean(lead_reversed) < mean(lead_of_one_tau) and mean(lead_split) > mean(lead_of_one_tau)",
    enough="steps >= 1000",
)
EFFECTIVE = Remark(
    "C3.effective",
    "Fig. 1, caption: the spectrum of trained weights",
    "what the loss sees, T^(-1/2) W, is as flat with tau_c < tau_s as without content.",
    "mean(flatness) > 0.67",
    "it is no flatter than with one tau, at either of their levels: temperatures are a change of "
    "parameters.",
    "mean(flatter_than_one_tau) < 1.2 and mean(flatter_than_low_level) < 1.2",
    enough="steps >= 1000",
)
RANK = Stated(
    "C3.rank",
    "on the sphere unequal temperatures cost rank even without content: more than one tau does at "
    "either of their levels",
    "Sec. 4.1, linear (ours)",
    "not said",
    "mean(flatness_of_unequal) < 0.5 and mean(lost_over_levels) > 0.17",
    enough="steps >= 1000",
    kind="remark",
)
READOUT = Stated(
    "C3.readout",
    "a linear readout is blind to collapse: R^2 of style is 1 for the collapsed encoder",
    "Sec. 4.1: R^2, in the linear case (ours)",
    "not discussed",
    "r2_of_style > 0.99",
    kind="remark",
)
CLAIMS = (FLAT, LARGE, SPHERE, TAU, EITHER, STANDS, EFFECTIVE, RANK, READOUT)


@dataclass(frozen=True)
class Settings:
    """Latents and training.

    Args:
        seeds: a mixing, a start and draws each; two runs pooled, see the header.
        fresh: the first seed that was not known when rules were changed last.
        d: 8 [Sec. 4.1]. contents: d_c, as in Fig. 1.
        std, kappa: of style in the box and on the sphere; ours, see the header.
        tau: of the box, 1 [Table 1]. tau_sphere: ours.
        low: tau_c / tau_s where unequal; its inverse for Sec. 3.
        steps, batch, lr: of Adam; ours.
    """

    seeds: tuple[int, ...] = tuple(range(3, 27))
    fresh: int = 15
    d: int = 8
    contents: tuple[int, ...] = (0, 1, 2, 4)
    std: float = 0.29
    kappa: float = 2.0
    tau: float = 1.0
    tau_sphere: float = 0.3
    low: float = 0.2
    steps: int = 1500
    batch: int = 256
    lr: float = 0.02


QUICK = Settings(seeds=(0,), fresh=0, steps=10, batch=64)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), fresh=0, steps=20_000, batch=5120, lr=0.003)


Case = tuple[str, int, float, float]


def process(settings: Settings, space: str, content: int, seed: int) -> Any:
    """The data process."""
    d, data = settings.d, cs.data
    box = space == "box"
    return data.Process(
        data.Box(d) if box else data.Sphere(d),
        content,
        data.Normal(settings.std) if box else data.VonMisesFisher(settings.kappa),
        mixing=data.Orthogonal(d, seed=seed),
    )


def temperatures(
    settings: Settings, space: str, content: int, ratio: float, level: float = 1.0
) -> list[float]:
    """tau per dimension, content first; without content the first half has the other one."""
    tau = level * (settings.tau if space == "box" else settings.tau_sphere)
    many = content or settings.d // 2
    return [ratio * tau] * many + [tau] * (settings.d - many)


def trained(settings: Settings, case: Case, seed: int) -> dict:
    """W after training; its spectrum, that of T^(-1/2) W, and what a readout sees."""
    space, content, ratio, level = case
    source = process(settings, space, content, seed)
    taus = temperatures(settings, space, content, ratio, level)
    tau: Any = taus if ratio != 1 else taus[-1]
    kernel = cs.Lp(p=2, tau=tau) if space == "box" else cs.Cosine(tau=tau)
    loss_of = cs.InfoNCE(kernel, cs.SameView(), anchors="first")
    draw = torch.Generator().manual_seed(seed)
    f = linear(torch.linalg.qr(torch.randn(settings.d, settings.d, generator=draw))[0])

    def pair(step: int) -> list[Tensor]:
        drawn = source.sample(settings.batch, seed=step + 1_000_003 * seed)
        return [torch.from_numpy(x).float() for x in (drawn.x1, drawn.x2)]

    fitted(f, loss_of, pair, settings.steps, settings.lr)
    W = f.weight.detach()
    return {"content": content, "ratio": ratio, **measured(settings, W, source, taus)}


def measured(settings: Settings, W: Tensor, source: Any, taus: list[float]) -> dict[str, Any]:
    """Spectra, and R^2 of a linear readout of W x for style."""
    root = torch.tensor(taus).sqrt()[:, None]
    z = source.latents(2000, seed=2**31)
    h = torch.from_numpy(source.observe(z)).float() @ W.T
    last = cs.diagnostics.readout(h.double(), z[:, -1])
    return {
        "raw": torch.linalg.svdvals(W).tolist(),
        "effective": torch.linalg.svdvals(W / root).tolist(),
        "r2": last.score,
    }


def leads(settings: Settings, seed: int) -> dict[str, float]:
    """How much faster than style content grows near W = 0, by the order of temperatures.

    The mean gradient of the diagonal of W = I / 100 in the rows of d_c = 2 content dimensions, over
    that in the others, for latents in the box as they are.
    """
    many, d = 2, settings.d
    source = cs.data.Process(cs.data.Box(d), many, cs.data.Normal(settings.std))
    drawn = source.sample(16 * settings.batch, seed=seed)
    x1, x2 = (torch.from_numpy(x).double() for x in (drawn.x1, drawn.x2))
    found = {}
    for name, ratio in (("one", 1.0), ("split", settings.low), ("reversed", 1 / settings.low)):
        taus = temperatures(settings, "box", many, ratio)
        W = (torch.eye(d, dtype=torch.float64) / 100).requires_grad_()
        objective = cs.InfoNCE(cs.Lp(p=2, tau=taus), cs.SameView(), anchors="first")
        objective(x1 @ W.T, x2 @ W.T).backward()
        grows = -W.grad.diagonal()  # type: ignore[union-attr]
        found[name] = float(grows[:many].mean() / grows[many:].mean())
    return found


def cases(settings: Settings) -> dict[str, Case]:
    """Every encoder, by name: space, d_c, tau_c / tau_s and the level of tau."""
    low = settings.low
    box: list[Case] = [("box", c, r, 1.0) for c in settings.contents for r in (1.0, low)]
    box += [("box", 2, 1 / low, 1.0), ("box", 2, 1.0, low), ("box", 2, 1.0, 1 / low)]
    box += [("box", 2, 1 / low, low)]  # the two values of ("box", 2, low, 1.0), exchanged
    ball: list[Case] = [("sphere", c, 1.0, 1.0) for c in settings.contents]
    every: list[Case] = [*box, *ball, ("sphere", 0, low, 1.0), ("sphere", 0, 1.0, low)]
    return {
        f"{a} {c} {r:g}" + (f" level {level:g}" if level != 1 else ""): (a, c, r, level)
        for a, c, r, level in every
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Every case over the seeds."""
    result: dict[str, Any] = {
        "steps": settings.steps,
        "low": settings.low,
        "fresh": [seed >= settings.fresh for seed in settings.seeds],
    }
    for name, case in cases(settings).items():
        result[name] = [
            keep(f"{name} {seed}", lambda c=case, s=seed: trained(settings, c, s))
            for seed in settings.seeds
        ]
    result["leads"] = [keep(f"leads {s}", lambda s=s: leads(settings, s)) for s in settings.seeds]
    return result


def flatness(values: list[float]) -> float:
    """The smallest singular value over the largest."""
    return values[-1] / values[0]


def counted(values: list[float]) -> tuple[int, float]:
    """How many singular values stand before the largest drop, and that drop as a ratio.

    The drop is a difference: a ratio of two values near zero would be large and mean nothing.

    Example:
        >>> counted([5.0, 4.0, 0.5, 0.4, 1e-9])
        (2, 8.0)
    """
    drops = [a - b for a, b in itertools.pairwise(values)]
    at = int(np.argmax(drops))
    return at + 1, values[at] / max(values[at + 1], 1e-9)


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Flat without content, d_c large with it, and what temperatures do."""
    steps, low = result["steps"], result["low"]
    spectra = lambda name, kind: [row[kind] for row in result[name]]
    spread = lambda name: [1 / flatness(values) for values in spectra(name, "raw")]

    def large(space: str) -> dict[str, Any]:
        """For every seed: the share of encoders whose d_c is counted, and their least gap."""
        names = [n for n in result if n.startswith(space) and n.endswith(" 1") and n[-3] != "0"]
        ranks = [[counted(values) for values in spectra(name, "raw")] for name in names]
        wanted = [int(name.split()[1]) for name in names]
        by_seed = list(zip(*ranks, strict=True))
        right = [[c == d for (c, _), d in zip(row, wanted, strict=True)] for row in by_seed]
        return {
            "counted_right": [sum(row) / len(row) for row in right],
            "least_gap": [min(gap for _, gap in row) for row in by_seed],
            "steps": steps,
        }

    def flatter(name: str, kind: str, base: str = "box 2 1") -> list[float]:
        both = zip(spectra(name, kind), spectra(base, kind), strict=True)
        return [flatness(a) / flatness(b) for a, b in both]

    def over_levels(name: str, levels: tuple[str, str]) -> list[float]:
        """How much flatter W is than with one tau at the better of two levels."""
        both = zip(*(flatter(name, "raw", level) for level in levels), strict=True)
        return [min(pair) for pair in both]

    gap = lambda name: [counted(values)[1] for values in spectra(name, "raw")]

    def narrower(name: str, levels: tuple[str, str]) -> list[float]:
        """The gap of one tau, at the level where it is narrower, over the gap here."""
        every = zip(gap(name), *(gap(level) for level in levels), strict=True)
        return [min(one, other) / here for here, one, other in every]

    one, less, more = "box 2 1", f"box 2 {low:g}", f"box 2 {1 / low:g}"
    low_level, high_level = f"box 2 1 level {low:g}", f"box 2 1 level {1 / low:g}"
    swapped = f"box 2 {1 / low:g} level {low:g}"
    split, exchanged = narrower(less, (one, low_level)), narrower(swapped, (one, low_level))
    orders = (less, low_level), (swapped, low_level), (more, high_level)
    best = [max(row) for row in zip(*(over_levels(a, (one, b)) for a, b in orders), strict=True)]
    lead = lambda name: [row[name] for row in result["leads"]]
    flat = lambda name, kind="raw": [flatness(values) for values in spectra(name, kind)]
    ball = f"sphere 0 {low:g}", "sphere 0 1", f"sphere 0 1 level {low:g}"

    def new(**numbers: list[float]) -> dict[str, Any]:
        """Of lists over seeds those that were not known when the rule was changed."""
        fresh = {
            name: [x for x, late in zip(values, result["fresh"], strict=True) if late]
            for name, values in numbers.items()
        }
        return {**fresh, "steps": steps}

    return [
        FLAT.judge(box=spread("box 0 1"), sphere=spread("sphere 0 1"), steps=steps),
        LARGE.judge(**large("box")),
        SPHERE.judge(**large("sphere")),
        TAU.judge(
            flatter_than_levels=over_levels(less, (one, low_level)),
            flatter_than_one_tau=flatter(less, "raw"),
            flatter_reversed=flatter(more, "raw"),
            flatter_by_level=flatter(low_level, "raw"),
            flatter_by_high_level=flatter(high_level, "raw"),
            steps=steps,
        ),
        EITHER.judge(
            **new(
                narrower=split,
                narrower_reversed=exchanged,
                reversed_minus_split=[b - a for a, b in zip(split, exchanged, strict=True)],
                narrower_reversed_high=narrower(more, (one, high_level)),
            ),
            gaps={
                name: sum(gap(name)) / len(gap(name))
                for name in (one, low_level, high_level, less, swapped, more)
            },
        ),
        STANDS.judge(
            expected={"flatter_by_an_order": new(best=best)["best"]},
            ours=new(
                lead_of_one_tau=lead("one"),
                lead_split=lead("split"),
                lead_reversed=lead("reversed"),
            ),
        ),
        EFFECTIVE.judge(
            expected={"flatness": new(flat=flat(less, "effective"))["flat"]},
            ours=new(
                flatter_than_one_tau=flatter(less, "effective"),
                flatter_than_low_level=flatter(less, "effective", low_level),
            ),
        ),
        RANK.judge(
            **new(
                flatness_of_unequal=flat(ball[0]),
                flatness_of_one_tau=flat(ball[1]),
                flatness_of_low_level=flat(ball[2]),
                lost_over_levels=[
                    min(levels) - unequal
                    for unequal, *levels in zip(*(flat(name) for name in ball), strict=True)
                ],
            )
        ),
        READOUT.judge(r2_of_style=[row["r2"] for row in result["box 2 1"]]),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Normalised singular values: box raw and effective, and sphere, of the first seed; the gap."""
    canvas, axes = style.canvas(1, 4, width=2.8)
    low = result["low"]
    panels = (
        ("box", "raw", "box, W"),
        ("box", "effective", "box, what the loss sees"),
        ("sphere", "raw", "sphere, W"),
    )
    for axis, (space, kind, title) in zip(axes[0], panels, strict=False):
        names = [n for n in result if n.startswith(space) and "level" not in n]
        for name in names:
            _, content, ratio = name.split()
            row = result[name][0]
            if float(ratio) > 1:
                continue
            values = [v / row[kind][0] for v in row[kind]]
            order = ("0", "1", "2", "4").index(content)
            axis.plot(
                range(1, len(values) + 1),
                values,
                "o-" if float(ratio) == 1 else "o--",
                color=style.COLOURS[order],
                label=f"$d_c = {content}$" if float(ratio) == 1 else None,
            )
        axis.set_ylim(0, 1.05)
        style.label(axis, "index", r"$\sigma_i / \sigma_1$", title)
    axis.plot([], [], "--", color=style.GREY, label=rf"$\tau_c = {low:g}\,\tau_s$")
    gaps = axes[0, 3]
    rows = {
        r"one $\tau$": "box 2 1",
        f"one, {low:g}": f"box 2 1 level {low:g}",
        f"one, {1 / low:g}": f"box 2 1 level {1 / low:g}",
        rf"two, ${low:g} < 1$": f"box 2 {low:g}",
        rf"two, $1 > {low:g}$": f"box 2 {1 / low:g} level {low:g}",
        rf"two, ${1 / low:g} > 1$": f"box 2 {1 / low:g}",
    }
    for i, name in enumerate(rows.values()):
        values = [counted(row["raw"])[1] for row in result[name]]
        colour = style.COLOURS[0] if i < 3 else style.COLOURS[1]
        gaps.scatter(values, [i] * len(values), s=12, color=colour, linewidths=0)
    gaps.set_yticks(range(len(rows)), list(rows))
    gaps.invert_yaxis()
    gaps.set_xlim(left=0)
    style.label(
        gaps, r"$\sigma_2 / \sigma_3$", r"$\tau$: one, or $\tau_c, \tau_s$", "box, $d_c = 2$"
    )
    canvas.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return canvas
