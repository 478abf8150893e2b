"""Props. 4.1, 4.2: a linear projector annihilates the directions of the augmentation.

Paper: cosentino2022, Sec. 4 (1a), eq. (6), Props. 4.1 and 4.2, and eq. (9). The linear model: h1
and h2 differ by a random amount along k given directions, a linear projector W (d_proj x d_enc)
learns by eq. (1).

Judged: after training rank(W) = min(d_proj, d_enc - k) for every k, the collapse that Prop. 4.2
derives by rank and nullity; it shows only where d_enc - k < d_proj. Of a direction of the
augmentation W passes less than 1 % of what it passes of any. Weaker augmentations leave them in:
what is annihilated grows with the strength.

Erratum: Prop. 4.1 says that invariance holds *only* if v is in the kernel. The sentence before it
names two cases, (i) W^T v colinear to W^T h and (ii) v in the kernel; the proposition keeps (ii),
and case (i) is not excluded by its hypothesis, that h1 and h2 are not colinear. W^T h2 has the
direction of W^T h1 if and only if W^T v = a W^T h1 with a > -1, for then W^T h2 = (1 + a) W^T h1;
the kernel is a = 0. For a < -1 the directions are opposite, so (i) itself needs the sign. The proof
of Prop. 4.3 follows that of Prop. 4.1 and inherits the gap. Two examples: a W of rank one that is
positive on all h and v, and a W of full rank d_proj with v = a h + (a part in the kernel), a drawn
between -0.9 and 2. Typos: Ker(W)
should read Ker(W^T), and W W^T h of eq. (9) is a projection only if W^T W = I; eq. (10), which is
what is measured, projects by least squares.

Deviations: in the paper h1 is the sample itself and h2 = h1 + v; here both are moved, as views are.
Each step sees a batch and its mirror image along the directions, so that an annihilated direction
stays annihilated to the last digit; the law of the data has this symmetry, a batch has not.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Stated, at_once, style
from chiaroscuro.labs.trained import fitted, linear

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

RANK = Stated(
    "G7.rank",
    "rank(W) = min(d_proj, d_enc - dim span(v)), by squares of the singular values",
    "Props. 4.1, 4.2",
    "the stronger the augmentations, the lower the rank",
    "mean(off) < 0.5",
    enough="steps >= 400 and n_seeds >= 3",
)
KERNEL = Stated(
    "G7.annihilated",
    "the directions of the augmentation are in the kernel, and more so than the data",
    "Prop. 4.1",
    "v in Ker(W)",
    "mean(energy) < 0.01 and mean(annihilated) > mean(data)",
    enough="steps >= 400 and n_seeds >= 3",
)
STRENGTH = Stated(
    "G7.strength",
    "the stronger the augmentation, the more of it W annihilates",
    "Sec. 4, Fig. 2: strength weighs invariance against repulsion",
    "strength acts as a weight",
    "mean(largest_fall) < 0.02 and mean(weakest) < 0.5 and mean(strongest) > 0.99",
    enough="steps >= 400 and n_seeds >= 3",
)
ONLY_IF = Erratum(
    "G7.only_if",
    "Prop. 4.1, and Prop. 4.3 by its proof",
    "where the cosine of W^T h1 and W^T h2 is 1, W annihilates v.",
    "annihilated > 0.999 and annihilated_full_rank > 0.999",
    "it is 1 if and only if W^T v = a W^T h1 with a > -1 (a = 0: the kernel; for a < -1 it is -1).",
    "residual < 1e-10 and smallest_a > -1 and cosine > 0.9999999999 and residual_below < 1e-10 and "
    "largest_a_below < -1 and cosine_below < -0.9999999999 and residual_others > 0.1 and "
    "cosine_others < 0.9",
    quote="Assuming h_i^(1) and h_i^(2) are not colinear for all i, then L_invariance is "
    "minimized if and only if v_i in Ker(W)",
    why="the sentence before the proposition names the other case itself: (i) W^T v_i is colinear "
    "to W^T h_i^(1), and says that the similarity is maximal in both. The hypothesis excludes "
    "colinear h, not colinear W^T h; the last step of the proof, from (23) to (24), drops case (i) "
    "by it. A W of rank one that is positive on all h and v has cosine 1 and annihilates no v. "
    "App. D.5 proves Prop. 4.3 by 'following the proof in Appendix D.3'",
)
TRANSPOSED = Erratum(
    "G7.transposed",
    "Props. 4.1-4.3: Ker(W), with g(h) = W^T h",
    "W v = 0 makes g invariant to v.",
    "cosine > 0.9999999999",
    "W^T v = 0 does.",
    "cosine > 0.9999999999",
    quote="Sec. 3: g(h) = W^T h; Prop. 4.1: v_i in Ker(W)",
    why="the proof in App. D.3 has W^T v_i = 0",
    kind="typo",
)
PROJECTION = Erratum(
    "G7.projection",
    "eq. (9): W W^T h is the projection of h onto the column space of W",
    "applied twice it gives the same as once, for any W.",
    "error < 1e-10",
    "so it does for W with W^T W = I; eq. (10) has the projection for any W, by least squares.",
    "error < 1e-10",
    quote="Proj(h_i^(1)) = W W^T h_i^(1), i.e., the projection of h_i^(1) onto the column space "
    "of W",
    why="a projection applied twice is itself; nothing before it makes the columns of W "
    "orthonormal (what is normalised is the projector's output). Nothing follows from the word: "
    "eq. (8) is right with W W^T h, and eq. (10), Fig. 7, minimises over t in W t",
    kind="typo",
)
CLAIMS = (RANK, KERNEL, STRENGTH, ONLY_IF, TRANSPOSED, PROJECTION)


@dataclass(frozen=True)
class Settings:
    """The linear toy.

    Args:
        seeds: directions, data and a start of W each.
        d_enc, d_proj: 512 and 128 in Sec. 2; here small, in the same proportion or larger, so that
            d_enc - k < d_proj happens.
        spans: the numbers k of directions.
        scale: standard deviation along each, against 1 of the data.
        scales: of the strength curve, at the k of `span`; there W is square, so that directions do
            not compete for rows.
        span: k of the strength curve.
        batch: 64; 128 in Fig. 3.
        beta: 2 in Sec. 2.
        steps, lr: of Adam with cosine decay.
    """

    seeds: tuple[int, ...] = (3, 4, 5, 6, 7, 8)
    d_enc: int = 12
    d_proj: int = 8
    spans: tuple[int, ...] = (0, 2, 4, 5, 6, 8, 10, 11)
    scale: float = 4.0
    scales: tuple[float, ...] = (0.1, 0.3, 0.6, 1.0, 1.5, 2.5, 4.0)
    span: int = 6
    batch: int = 64
    beta: float = 2.0
    steps: int = 800
    lr: float = 0.03


QUICK = Settings(seeds=(0,), spans=(0, 6), scales=(0.3, 4.0), batch=32, steps=20)
LAPTOP = Settings()
PAPER = Settings(
    seeds=(0, 1, 2, 3, 4),
    d_enc=512,
    d_proj=128,
    spans=(0, 128, 256, 384, 400, 448, 480, 504),
    span=448,
    batch=128,
    steps=20000,
    lr=0.003,
)


def by_squares(values: Sequence[float] | np.ndarray) -> float:
    """The effective rank by squares: the exponential of the entropy of s_i^2 over their sum.

    Example:
        >>> round(by_squares([1.0, 1.0, 1e-4]), 4)
        2.0
    """
    p = torch.as_tensor(values, dtype=torch.float64).square()
    p = p / p.sum()
    return float(torch.exp(torch.special.entr(p).sum()))


def energy(W: Tensor, V: Tensor) -> float:
    """What W passes of a direction of the augmentation, over what it passes of any direction."""
    return float((W @ V.T).square().sum() / len(V) / (W.square().sum() / W.shape[1]))


class Mirrored(torch.nn.Module):
    """W x and W M x side by side, for a mirror M."""

    def __init__(self, W: Tensor, M: Tensor):
        super().__init__()
        self.W, self.M = linear(W), M

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.W(x), self.W(x @ self.M)], dim=1)


def mirrored(
    W: Tensor, M: Tensor, objective: Any, pair: Callable[[int], Any], steps: int, lr: float
) -> Tensor:
    """W trained on pairs and on the mirrored pairs alike, half of the loss each."""
    d = len(W)
    halves = (cs.OnDims(objective, start, start + d) for start in (0, d))
    net = Mirrored(W, M)
    fitted(net, cs.Weighted(*((0.5, half) for half in halves)), pair, steps, lr)
    return net.W.weight.detach()


def learnt(settings: Settings, k: int, scale: float, seed: int, d_proj: int) -> dict[str, Any]:
    """Train W on views along k directions; what it kept of them."""
    draw = torch.Generator().manual_seed(seed)
    d = settings.d_enc
    normal = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=draw)
    W = normal(d_proj, d) / d**0.5
    V = torch.linalg.qr(normal(d, d))[0][:k]
    move = cs.views.Directions(V, scale=scale) if k else None
    mirror = torch.eye(d, dtype=torch.float64) - 2 * V.T @ V
    objective = cs.InfoNCE(cs.Cosine(tau=1 / settings.beta), cs.AllButPair())

    def views(n: int, step: int) -> tuple[Tensor, Tensor]:
        x = normal(n, d)
        if move is None:
            return x, x
        h1, h2 = (move(x, range(n), seed, step, view)[0] for view in (0, 1))
        return h1, h2

    pair = lambda step: views(settings.batch, step)
    W = mirrored(W, mirror, objective, pair, settings.steps, settings.lr)
    h1, h2 = views(1000, settings.steps)
    seen = cs.diagnostics.augmentations(W, h1, h2)
    return {
        "k": k,
        "scale": scale,
        "rank": cs.diagnostics.numerical_rank(W, centred=False),
        "predicted": cs.diagnostics.predicted_rank(d_proj, d, k),
        "span": seen.span,
        "gain": seen.gain,
        "annihilated": cs.diagnostics.unexplained(W, V, threshold=1e-3) if k else 1.0,
        "data": seen.data,
        "energy": energy(W, V) if k else 0.0,
        "values": cs.diagnostics.singular_values(W, centred=False).tolist(),
    }


def multiple(W: Tensor, h: Tensor, v: Tensor) -> dict[str, Any]:
    """The best a in W v = a W h by pairs, what it leaves of W v, and the cosine of W h and W (h+v).

    W is (d_proj, d_enc), the transpose of the paper's.
    """
    Wh, Wv = h @ W.T, v @ W.T
    a = (Wh * Wv).sum(dim=1) / Wh.square().sum(dim=1)
    left = (Wv - a[:, None] * Wh).square().sum() / Wv.square().sum()
    cosine = torch.nn.functional.cosine_similarity(Wh, Wh + Wv, dim=1)
    return {
        "annihilated": cs.diagnostics.unexplained(W, v),
        "residual": float(left),
        "a": [float(a.min()), float(a.max())],
        "cosine": [float(cosine.min()), float(cosine.max())],
        "mean_cosine": float(cosine.mean()),
    }


def counterexamples(settings: Settings, seed: int) -> dict[str, Any]:
    """Invariance without the kernel, the wrong kernel, and a projection that is none.

    What keeps the direction of W h is W v = a W h with a > -1: by a W of rank one, positive on all
    h and v, and by one of full rank with v = a h + (a part in the kernel); each also with a < -1,
    and the second with any v.
    """
    draw = torch.Generator().manual_seed(seed)
    d = settings.d_enc
    normal = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=draw)
    h = torch.rand(200, d, dtype=torch.float64, generator=draw)
    v = torch.rand(200, d, dtype=torch.float64, generator=draw)
    ones = torch.ones(1, d, dtype=torch.float64)
    W = normal(d, d)  # the paper's W, square
    W[:, 0] = 0
    forth = torch.eye(d, dtype=torch.float64)[:1]  # W forth' = 0
    back = torch.linalg.svd(W)[0][:, -1:].T  # W' back' = 0
    amount = normal(200, 1)
    wrong, right = (cs.diagnostics.augmentations(W.T, h, h + amount * e) for e in (forth, back))
    free = normal(d, settings.d_proj)
    orthonormal = torch.linalg.qr(free)[0]
    again = [
        float((P @ P @ h.T - P @ h.T).norm() / (P @ h.T).norm())
        for P in (free @ free.T, orthonormal @ orthonormal.T)
    ]
    x, kernel, others = normal(200, d), normal(200, d), normal(200, d)
    kernel = kernel - kernel @ orthonormal @ orthonormal.T
    a = torch.rand(200, 1, dtype=torch.float64, generator=draw)
    return {
        "wrong": wrong.cosine,
        "right": right.cosine,
        "twice": again[0],
        "twice_orthonormal": again[1],
        "rank_one": multiple(ones, h, v),
        "rank_one_below": multiple(ones, h, -1.1 * h - v),
        "full_rank": multiple(free.T, x, (2.9 * a - 0.9) * x + kernel),
        "full_rank_below": multiple(free.T, x, (-1.1 - a) * x + kernel),
        "others": multiple(free.T, x, others),
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Every span and every strength over the seeds."""
    strong, narrow, wide = settings.scale, settings.d_proj, settings.d_enc
    return {
        "steps": settings.steps,
        "d_enc": settings.d_enc,
        "d_proj": settings.d_proj,
        "spans": [
            [
                keep(f"span {k} {seed}", lambda k=k, s=seed: learnt(settings, k, strong, s, narrow))
                for k in settings.spans
            ]
            for seed in settings.seeds
        ],
        "strengths": [
            [
                keep(
                    f"scale {scale} {seed}",
                    lambda x=scale, s=seed: learnt(settings, settings.span, x, s, wide),
                )
                for scale in settings.scales
            ]
            for seed in settings.seeds
        ],
        "counterexamples": [counterexamples(settings, seed) for seed in settings.seeds],
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Rank, kernel and strength; an erratum and two typos."""
    spans = [row for rows in result["spans"] for row in rows]
    shares = [[row["annihilated"] for row in rows] for rows in result["strengths"]]
    falls = [max(a - b for a, b in itertools.pairwise(s)) for s in shares]
    many = {"steps": result["steps"], "n_seeds": len(result["spans"])}
    mean = lambda values: sum(values) / len(values)
    off = lambda row: abs(by_squares(row["values"]) - row["predicted"])
    moved = [[row for row in rows if row["k"]] for rows in result["spans"]]
    by_seed = lambda name: [mean([row[name] for row in rows]) for rows in moved]
    of = lambda name: [case[name] for case in result["counterexamples"]]
    drawn = result["counterexamples"]

    def of_both(choose: Callable[..., float], name: str, end: str) -> list[float]:
        both = [[row[rank + end][name] for rank in ("rank_one", "full_rank")] for row in drawn]
        return [choose(np.ravel(pair).tolist()) for pair in both]

    least, most = functools.partial(of_both, min), functools.partial(of_both, max)
    return [
        RANK.judge(
            off=[mean([off(row) for row in rows]) for rows in result["spans"]],
            largest_off=max(off(row) for row in spans),
            above_threshold_off=max(abs(row["rank"] - row["predicted"]) for row in spans),
            **many,
        ),
        KERNEL.judge(
            energy=by_seed("energy"),
            annihilated=by_seed("annihilated"),
            data=by_seed("data"),
            **many,
        ),
        STRENGTH.judge(
            largest_fall=falls,
            weakest=[s[0] for s in shares],
            strongest=[s[-1] for s in shares],
            **many,
        ),
        ONLY_IF.judge(
            printed={
                "annihilated": [row["rank_one"]["annihilated"] for row in drawn],
                "annihilated_full_rank": [row["full_rank"]["annihilated"] for row in drawn],
                "cosine": least("cosine", ""),
            },
            corrected={
                "residual": most("residual", ""),
                "smallest_a": least("a", ""),
                "cosine": least("cosine", ""),
                "residual_below": most("residual", "_below"),
                "largest_a_below": most("a", "_below"),
                "cosine_below": most("cosine", "_below"),
                "residual_others": [row["others"]["residual"] for row in drawn],
                "cosine_others": [row["others"]["mean_cosine"] for row in drawn],
            },
        ),
        TRANSPOSED.judge(printed={"cosine": of("wrong")}, corrected={"cosine": of("right")}),
        PROJECTION.judge(
            printed={"error": of("twice")}, corrected={"error": of("twice_orthonormal")}
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Rank against the span, the spectra of W, and what strength does."""
    canvas, axes = style.canvas(1, 3)
    rank, values, strength = axes[0]
    first = result["spans"][0]
    spans = [row["k"] for row in first]
    rank.plot(spans, [row["predicted"] for row in first], color=style.GREY, label="predicted")
    for i, rows in enumerate(result["spans"]):
        rank.plot(
            spans,
            [by_squares(row["values"]) for row in rows],
            "o",
            color=style.COLOURS[0],
            label=None if i else "effective rank of $W$",
            alpha=0.7,
        )
    sizes = rf"$d_{{enc}}$ {result['d_enc']}, $d_{{proj}}$ {result['d_proj']}"
    rank.set_ylim(bottom=0)
    rank.legend(loc="best")
    style.label(
        rank,
        "dimension $k$ of the span of $v$",
        "rank of $W$, by squares",
        f"rank and nullity, {sizes}",
    )
    for i, row in enumerate(first[:7]):
        s = [max(x / row["values"][0], 1e-8) for x in row["values"]]
        values.semilogy(range(1, len(s) + 1), s, marker="o", color=style.COLOURS[i], label=row["k"])
    values.axhline(1e-3, color=style.GREY, linestyle=":", linewidth=1)
    values.legend(title="k", ncols=2, loc="best")
    style.label(values, "index", r"$\sigma_i / \sigma_1$", "spectra of $W$, one seed")
    for rows in result["strengths"]:
        strength.plot(
            [row["scale"] for row in rows],
            [row["annihilated"] for row in rows],
            marker="o",
            color=style.COLOURS[0],
            alpha=0.8,
        )
    strength.set_xscale("log")
    strength.set_ylim(-0.03, 1.03)
    k = result["strengths"][0][0]["k"]
    style.label(strength, "strength (data: 1)", "share of $v$ annihilated", f"$k = {k}$")
    return canvas
