"""Fig. 1 left: singular values of a linear encoder, with content and without.

Paper: rusak2022, Sec. 4.1 (linear) and Fig. 1 left. Eight latents, d_c of them content; g linear, f
linear without bias, trained by InfoNCE in the box (unnormalised) and on the sphere (normalised).

Judged: without content the spectrum of W is flat, with d_c content dimensions exactly d_c singular
values are large; and what temperatures do.

Errata. With similarities *divided* by tau, the loss in the box sees W only through T^(-1/2) W, T
the diagonal of temperatures. Were content kept in its rows, tau_c < tau_s would shrink them and
flatten the raw spectrum, and the tau_c > tau_s that Sec. 3 prints would sharpen it; training does
not keep it there (C3.tau). Either way it is a change of parameters: the spectrum of T^(-1/2) W,
which is what the loss sees, collapses as before, though Fig. 1 calls the setting uncollapsed. On
the sphere, where T is no change of parameters, unequal temperatures cost rank even without content.
And in the linear case a readout shows nothing: an invertible W has R^2 = 1 of all latents, however
collapsed, so singular values are used.

What came out. In the box content grows to six to fifteen times its singular values without content,
while those of style stay within 28 % of them (1.9, and 1.4 for d_c = 4): style is outgrown, not
removed. C3.tau fails: which rows are called content decides little, for training turns W towards
content in the rows of lower tau (wholly with tau_c > tau_s, in part with tau_c < tau_s after these
steps). So both settings narrow the gap after d_c singular values (tau_c < tau_s by 1.2 to 1.5,
tau_c > tau_s, where six rows are low, by 2.2 to 2.3), and neither moves the ratio of the smallest
to the largest, by which the rule goes, upwards by more than 6 %. C3.sphere fails for one of nine
encoders: d_c = 4, where the last value of style is 0.01 and the largest ratio comes before it; four
are large there too.

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
from chiaroscuro.labs import Erratum, Keep, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

FLAT = Stated(
    "C3.flat",
    "without content the spectrum is flat: the largest singular value is below 1.5 of the smallest",
    "Fig. 1, left, d_c = 0",
    "flat",
    "box < 1.5 and sphere < 1.5",
    enough="steps >= 1000",
)
LARGE = Stated(
    "C3.large",
    "in the box with d_c content dimensions exactly d_c singular values are large",
    "Fig. 1, left, d_c = 1, 2, 4",
    "d_c large",
    "miscounted == 0 and gap > 2",
    enough="steps >= 1000",
)
SPHERE = Stated(
    "C3.sphere",
    "on the sphere too",
    "Sec. 4.1, linear: cosine similarity",
    "d_c large",
    "miscounted == 0 and gap > 2",
    enough="steps >= 1000",
)
TAU = Erratum(
    "C3.tau",
    "Sec. 3 against Sec. 4.1",
    "tau_c > tau_s flattens the spectrum of W (Sec. 3).",
    "flatter_than_one_tau > 1.2",
    "tau_c < tau_s does (Fig. 1).",
    "flatter_than_one_tau > 1.2",
    enough="steps >= 1000",
)
EFFECTIVE = Erratum(
    "C3.effective",
    "Fig. 1, caption: tau_c < tau_s yields the spectrum of the uncollapsed setting",
    "what the loss sees, T^(-1/2) W, is as flat with tau_c < tau_s as without content.",
    "flatness > 0.67",
    "it is no flatter than with one tau: temperatures are a change of parameters.",
    "flatter_than_one_tau < 1.2",
    enough="steps >= 1000",
)
RANK = Stated(
    "C3.rank",
    "on the sphere unequal temperatures cost rank even without content",
    "Sec. 4.1, linear (ours)",
    "not discussed",
    "flatness_of_one_tau > 0.67 and flatness_of_unequal < 0.5",
    enough="steps >= 1000",
)
READOUT = Stated(
    "C3.readout",
    "a linear readout is blind to collapse: R^2 of style is 1 for the collapsed encoder",
    "Sec. 4.1: R^2, in the linear case (ours)",
    "not discussed",
    "r2_of_style > 0.99",
)
CLAIMS = (FLAT, LARGE, SPHERE, TAU, EFFECTIVE, RANK, READOUT)


@dataclass(frozen=True)
class Settings:
    """Latents and training.

    Args:
        seeds: a mixing, a start and draws each.
        d: 8 [Sec. 4.1]. contents: d_c, as in Fig. 1.
        std, kappa: of style in the box and on the sphere; ours, see the header.
        tau: of the box, 1 [Table 1]. tau_sphere: ours.
        low: tau_c / tau_s where unequal; its inverse for Sec. 3.
        steps, batch, lr: of Adam; ours.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
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


QUICK = Settings(seeds=(0,), steps=10, batch=64)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), steps=20_000, batch=5120, lr=0.003)


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


def temperatures(settings: Settings, space: str, content: int, ratio: float) -> list[float]:
    """tau per dimension, content first; without content the first half has the other one."""
    tau = settings.tau if space == "box" else settings.tau_sphere
    many = content or settings.d // 2
    return [ratio * tau] * many + [tau] * (settings.d - many)


def trained(settings: Settings, space: str, content: int, ratio: float, seed: int) -> dict:
    """W after training; its spectrum, that of T^(-1/2) W, and what a readout sees."""
    source = process(settings, space, content, seed)
    taus = temperatures(settings, space, content, ratio)
    tau: Any = taus if ratio != 1 else taus[-1]
    kernel = cs.Lp(p=2, tau=tau) if space == "box" else cs.Cosine(tau=tau)
    loss_of = cs.InfoNCE(kernel, cs.SameView(), anchors="first")
    draw = torch.Generator().manual_seed(seed)
    W = torch.linalg.qr(torch.randn(settings.d, settings.d, generator=draw))[0].requires_grad_()
    adam = torch.optim.Adam([W], lr=settings.lr)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, settings.steps)
    for step in range(settings.steps):
        pairs = source.sample(settings.batch, seed=step + 1_000_003 * seed)
        x1, x2 = (torch.from_numpy(x).float() for x in (pairs.x1, pairs.x2))
        adam.zero_grad()
        loss_of(x1 @ W.T, x2 @ W.T).backward()
        adam.step()
        falling.step()
    return {"content": content, "ratio": ratio, **measured(settings, W.detach(), source, taus)}


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


def cases(settings: Settings) -> list[tuple[str, int, float]]:
    """Space, d_c and tau_c / tau_s of every encoder."""
    box = [("box", c, r) for c in settings.contents for r in (1.0, settings.low)]
    box.append(("box", 2, 1 / settings.low))
    ball = [("sphere", c, 1.0) for c in settings.contents]
    return [*box, *ball, ("sphere", 0, settings.low)]


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Every case over the seeds."""
    found: dict[str, Any] = {"steps": settings.steps, "low": settings.low}
    for space, content, ratio in cases(settings):
        name = f"{space} {content} {ratio:g}"
        found[name] = [
            keep(
                f"{name} {seed}",
                lambda a=space, b=content, c=ratio, s=seed: trained(settings, a, b, c, s),
            )
            for seed in settings.seeds
        ]
    return found


def flatness(values: list[float]) -> float:
    """The smallest singular value over the largest."""
    return values[-1] / values[0]


def counted(values: list[float]) -> tuple[int, float]:
    """How many singular values stand before the largest gap, and that gap as a ratio."""
    ratios = [a / max(b, 1e-9) for a, b in itertools.pairwise(values)]
    return int(np.argmax(ratios)) + 1, max(ratios)


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Flat without content, d_c large with it, and what temperatures do."""
    steps, low = result["steps"], result["low"]
    spectra = lambda name, kind: [row[kind] for row in result[name]]
    spread = lambda name: [1 / flatness(values) for values in spectra(name, "raw")]

    def large(space: str) -> dict[str, Any]:
        wrong, gaps = 0, []
        for name in (n for n in result if n.startswith(space) and n.endswith(" 1")):
            content = int(name.split()[1])
            for values in spectra(name, "raw") if content else ():
                count, gap = counted(values)
                wrong += count != content
                gaps.append(gap)
        return {"miscounted": wrong, "gap": gaps, "steps": steps}

    def flatter(name: str, kind: str) -> list[float]:
        both = zip(spectra(name, kind), spectra("box 2 1", kind), strict=True)
        return [flatness(a) / flatness(b) for a, b in both]

    def narrower(name: str) -> list[float]:
        """The gap of one tau over the gap here."""
        both = zip(spectra("box 2 1", "raw"), spectra(name, "raw"), strict=True)
        return [counted(a)[1] / counted(b)[1] for a, b in both]

    less, more = f"box 2 {low:g}", f"box 2 {1 / low:g}"
    return [
        FLAT.judge(box=spread("box 0 1"), sphere=spread("sphere 0 1"), steps=steps),
        LARGE.judge(**large("box")),
        SPHERE.judge(**large("sphere")),
        TAU.judge(
            printed={"flatter_than_one_tau": flatter(more, "raw"), "gap_narrower": narrower(more)},
            corrected={
                "flatter_than_one_tau": flatter(less, "raw"),
                "gap_narrower": narrower(less),
                "steps": steps,
            },
        ),
        EFFECTIVE.judge(
            printed={"flatness": [flatness(v) for v in spectra(less, "effective")]},
            corrected={"flatter_than_one_tau": flatter(less, "effective"), "steps": steps},
        ),
        RANK.judge(
            flatness_of_one_tau=[flatness(v) for v in spectra("sphere 0 1", "raw")],
            flatness_of_unequal=[flatness(v) for v in spectra(f"sphere 0 {low:g}", "raw")],
            steps=steps,
        ),
        READOUT.judge(r2_of_style=[row["r2"] for row in result["box 2 1"]]),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Normalised singular values: box raw and effective, and sphere; the first seed."""
    canvas, axes = style.canvas(1, 3, width=3.0)
    low = result["low"]
    panels = (
        ("box", "raw", "box, W"),
        ("box", "effective", "box, what the loss sees"),
        ("sphere", "raw", "sphere, W"),
    )
    for axis, (space, kind, title) in zip(axes[0], panels, strict=True):
        names = [n for n in result if n.startswith(space)]
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
                label=f"d_c = {content}" if float(ratio) == 1 else None,
            )
        axis.set_ylim(0, 1.05)
        style.label(axis, "singular value", "over the largest", title)
    axis.plot([], [], "--", color=style.GREY, label=f"tau_c = {low:g} tau_s")
    canvas.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return canvas
