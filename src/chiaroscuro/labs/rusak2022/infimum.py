"""Props 1, 4-6, Cor. 1, Lemma 1, Conjecture 1: what is optimal, and what the projector shields.

Paper: rusak2022, Sec. 3 and App. D.

An erratum, a typo and remarks of ours (each claim says which). Props 1 and 4 say that a collapsed
encoder (image: content, kernel: style) achieves the optimum of the loss; their proof lets the scale
of content go to infinity, and that is how to read them: 0 is an infimum, which no finite scale
attains, and a full-rank encoder that keeps style approaches it just as well, which the paper does
not deny. At content's own scale, Im = Z^c as the hypothesis says, the loss of the collapsed encoder
is even above that of g^-1 (5.31 and 5.07): style separates negatives there. Cor. 1 holds. Prop. 5
bounds the rank of the gradient by d_c at the optimum. There the gradient is 0, and the bound is
true. Its proof is of "a weight matrix W"; on the way to the optimum it is right of the last one
(and of a linear encoder), where one factor D serves all samples. In earlier layers of a nonlinear
network D J(x) differs from sample to sample and ranks add up. Prop. 6 prints rank(f_D) = d; rank(f)
= d is meant, D and f_D = D f have rank d_c, and their normalised representations agree.

Erratum: Sec. 3 says that without content a low-rank W increases the norm of positive pairs, and
that this is why W = 0 is no minimiser. For an orthogonal projection P and any difference d, |P W d|
<= |W d|, and W = 0 gives 0: the norm falls, with and without content. So does that of negatives,
each term exp(-|z_i - z_j|^2 / 2) rises, and the loss is log(1 + M) at W = 0: it is the repulsion
that keeps W = 0 from being a minimiser, as App. C computes.

Lemma 1 is measured on a toy with labels: content is the class, and the class means of the trained
representation on the sphere should form a simplex equiangular tight frame (ETF), cosines
-1/(K-1), with nothing left inside a class. Conjecture 1: the projector shields, so style should be
readable before it and not after it.

Results. All claims come out as stated. The projector shields style more on the sphere, where its
R^2 falls by 0.36 to 0.56, than in the box, where it falls by 0.16 to 0.22 and 0.56 to 0.60 remain.

Deviations: the paper proves and does not measure, but for Conjecture 1 (Fig. 1). The toy, its
encoder and all sizes are ours. The projector is the last two of the seven layers of C4's encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Remark, Stated, at_once, style
from chiaroscuro.labs.rusak2022 import layers
from chiaroscuro.labs.trained import fitted

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

INFIMUM = Remark(
    "C9.infimum",
    "Props 1 and 4, whose proof lets D go to infinity",
    "an encoder onto content, blind to style, is at the optimum of the loss at any scale.",
    "loss < 1e-6",
    "0 is approached as content's scale grows, as in the proof; full-rank encoders do so too.",
    "collapsed < 1e-6 and full_rank < 1e-6",
)
STYLE_ALONE = Erratum(
    "C9.style_alone",
    "Sec. 3, below eq. (2)",
    "with style alone the mean norm of positive pairs is larger under a low-rank P W than under W.",
    "norm_ratio > 1",
    "it is smaller, and 0 under W = 0; the repulsion grows, and W = 0 has a larger loss than the "
    "best scale of g^-1.",
    "norm_ratio < 1 and norm_of_zero == 0 and repulsion_rise > 0 and excess_of_zero > 0.1",
    quote="Note that this reasoning requires the presence of content variables: If only style "
    "variables are present, then a low-rank W will increase the norm for (z, z~) -- intuitively, "
    "this is why W = 0 does not minimize L_CL, which we show in Appx. C",
    why="the norm is that of eq. (2), (x - x~)^T W^T W (x - x~); a projection of W x lowers it for "
    "every pair, and W = 0, the sentence's own example, makes it 0. It is no slip for the "
    "negatives, whose norms fall too. Appx. C shows by another way that W = 0 is no minimiser: "
    "the loss is log(1 + M) an anchor there, as negatives coincide (C6.zero). Nothing else in the "
    "paper rests on the sentence",
)
SUBOPTIMAL = Stated(
    "C9.suboptimal",
    "with content, scaling content alone beats f = g^-1; without content no scale is endless",
    "Cor. 1",
    "W_GT is not the optimum when d_c > 0",
    "content_scaled < inverse and far_without_content > best_without_content",
)
NONLINEAR = Stated(
    "C9.nonlinear",
    "for a nonlinear g the losses of D g^-1 are those of the linear case",
    "Prop. 1: the same strategy as in Prop. 4",
    "same",
    "difference < 1e-6",
)
RANK = Remark(
    "C9.rank",
    "Prop. 5, on the way to the optimum",
    "close to the optimum the gradient of any weight matrix of f has rank at most d_c behind D.",
    "rank_first <= content",
    "the last matrix's before D has, and a linear encoder's; an earlier one's need not. In the "
    "limit all are 0, and the proposition, which is of the optimum, holds.",
    "rank_last <= content and rank_linear <= content and loss < 0.01 and far_gradient < 1e-12",
)
FIX = Erratum(
    "C9.fix",
    "Prop. 6",
    "f_D = D f has rank d = d_c + d_s.",
    "rank_composed == d",
    "f has rank d and f_D rank d_c; normalised, f_D is the collapsed representation.",
    "rank_f == d and rank_composed == content and difference < 1e-12",
    quote="f_D = D o f with rank(f_D) = d = d_c + d_s and rank(D) = d_c will have a rank of d_c",
    why="the sentence gives f_D two ranks; its proof means f",
    kind="typo",
)
ETF = Stated(
    "C9.etf",
    "class means form a simplex ETF, and style is gone from the output",
    "Lemma 1",
    "cosines -1/(K-1), nothing inside classes",
    "mean(cosine_error) < 0.1 and mean(within) < 0.1",
    enough="steps_etf >= 500",
)
SHIELD = Stated(
    "C9.shield",
    "style is readable before the projector and less so after it, on box and sphere",
    "Conjecture 1",
    "shields",
    "mean(drop_box) > 0.1 and mean(drop_sphere) > 0.1",
    enough="steps >= 2000",
)
CLAIMS = (INFIMUM, STYLE_ALONE, SUBOPTIMAL, NONLINEAR, RANK, FIX, ETF, SHIELD)


@dataclass(frozen=True)
class Settings:
    """Sizes of all parts.

    Args:
        seeds: of samples, mixings and weights.
        n: samples for losses and gradients.
        d, content, std, kappa, depth_g, depth, width, tau, tau_sphere, tau_content: as in C4.
        steps, batch, lr, rows: as in C4.
        scales: of content.
        near: the scale of content at which the ranks of gradients are taken: a loss below 0.01.
        classes, d_etf, noise: K classes, dimension of the output, and std of style, of the toy.
        steps_etf: of its training.
    """

    seeds: tuple[int, ...] = (0, 1, 2)
    n: int = 300
    d: int = 10
    content: int = 5
    std: float = 0.25
    kappa: float = 5.0
    depth_g: int = 3
    depth: int = 7
    width: int = 64
    tau: float = 1.0
    tau_sphere: float = 0.3
    tau_content: float = 1.0
    steps: int = 2000
    batch: int = 256
    lr: float = 2e-3
    rows: int = 4000
    scales: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
    near: float = 25.0
    classes: int = 5
    d_etf: int = 8
    noise: float = 1.0
    steps_etf: int = 1000


QUICK = Settings(seeds=(0,), n=100, depth=4, width=32, steps=10, batch=64, rows=400, steps_etf=20)
LAPTOP = Settings()
PAPER = Settings(
    seeds=tuple(range(5)), width=200, steps=100_000, batch=5120, lr=1e-4, steps_etf=10_000
)


def loss(z: Tensor, z2: Tensor) -> Tensor:
    """Eq. (4), the mean over anchors."""
    return cs.InfoNCE(cs.Gaussian(tau=1.0), cs.SameView(), anchors="first")(z, z2)


def scaling(settings: Settings, seed: int) -> dict[str, Any]:
    """Losses of encoders that scale content: collapsed, full-rank, and with no content at all."""
    c, d = settings.content, settings.d
    source = layers.process(settings, "box", seed)
    pairs = source.sample(settings.n, seed=seed)
    z, z2 = torch.from_numpy(pairs.z1), torch.from_numpy(pairs.z2)
    back = [torch.from_numpy(source.invert(x)) for x in (pairs.x1, pairs.x2)]
    losses: dict[str, Any] = {"collapsed": [], "full_rank": [], "nonlinear": []}
    for a in settings.scales:
        D = torch.tensor([a] * c + [0.0] * (d - c), dtype=torch.float64)
        losses["collapsed"].append(float(loss(z * D, z2 * D)))
        losses["nonlinear"].append(float(loss(back[0] * D, back[1] * D)))
        D[c:] = 1.0
        losses["full_rank"].append(float(loss(z * D, z2 * D)))
    losses["inverse"] = float(loss(z, z2))
    style_only = [x[:, c:] for x in (z, z2)]
    losses["no_content"] = [float(loss(*(a * x for x in style_only))) for a in settings.scales]
    return losses


def style_alone(settings: Settings, seed: int) -> dict[str, Any]:
    """Pairs of style alone under W and under low-rank P W: norms of positives, and the repulsion.

    W has random singular values between 0.5 and 2; P projects on random subspaces of every
    dimension, or cuts the least singular values of W.
    """
    c, n = settings.content, settings.n
    pairs = layers.process(settings, "box", seed).sample(n, seed=seed)
    x, x2 = (torch.from_numpy(z)[:, c:] for z in (pairs.z1, pairs.z2))
    d = x.shape[1]
    draw = torch.Generator().manual_seed(seed)
    turn = lambda: torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=draw))[0]
    norm = lambda W: float(((x - x2) @ W.T).norm(dim=1).mean())

    def repulsion(W: Tensor) -> float:
        """The logarithm of the denominator of eq. (4), the mean over anchors."""
        z, z2 = x @ W.T, x2 @ W.T
        return float(loss(z, z2) - (z - z2).square().sum(dim=1).mean() / 2)

    found: dict[str, Any] = {"norm_ratio": [], "repulsion_rise": []}
    for _ in range(5):
        values = 0.5 + 1.5 * torch.rand(d, dtype=torch.float64, generator=draw)
        U = turn()
        W = U * values.sort(descending=True).values @ turn()
        for basis in (turn(), U):
            for rank in range(1, d):
                low = basis[:, :rank] @ basis[:, :rank].T @ W
                found["norm_ratio"].append(norm(low) / norm(W))
                found["repulsion_rise"].append(repulsion(low) - repulsion(W))
    zero = torch.zeros(d, d, dtype=torch.float64)
    best = min(float(loss(a * x, a * x2)) for a in settings.scales)
    return found | {"norm_of_zero": norm(zero), "loss_of_zero": repulsion(zero), "best_loss": best}


def ranks(settings: Settings, seed: int) -> dict[str, Any]:
    """Ranks of gradients behind a projection D, near the infimum and far out; Prop. 6."""
    c, d = settings.content, settings.d
    pairs = layers.process(settings, "box", seed).sample(settings.n, seed=seed)
    z, z2 = torch.from_numpy(pairs.z1), torch.from_numpy(pairs.z2)
    draw = torch.Generator().manual_seed(seed)
    A, B = (
        torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=draw))[0] for _ in range(2)
    )
    # f(x) = B leaky(A x) inverts its x exactly; the linear encoder is B alone
    leaky = torch.nn.functional.leaky_relu
    mixed = [leaky(each @ B, 5.0) @ A for each in (z, z2)]
    f = lambda x, A, B: leaky(x @ A.T, 0.2) @ B.T
    result: dict[str, Any] = {}
    for name, scale in (("near", settings.near), ("far", settings.scales[-1])):
        D = torch.tensor([scale] * c + [0.0] * (d - c), dtype=torch.float64)
        first, last, W = (each.clone().requires_grad_() for each in (A, B, B))
        value = loss(*(f(x, first, last) * D for x in mixed))
        slopes = torch.autograd.grad(value, (first, last))
        (of_W,) = torch.autograd.grad(loss(z @ B @ W.T * D, z2 @ B @ W.T * D), W)
        result[name] = {
            "loss": float(value.detach()),
            "gradient": max(float(G.norm()) for G in (*slopes, of_W)),
            "ranks": [int(torch.linalg.matrix_rank(G, rtol=1e-9)) for G in (*slopes, of_W)],
        }
    h = f(mixed[0], A, B)
    flat = h * D  # the collapsed representation
    alike = lambda z: (z / z.norm(dim=1, keepdim=True)) @ (z / z.norm(dim=1, keepdim=True)).T
    rank = lambda h: int(torch.linalg.matrix_rank(h, rtol=1e-9))
    # a full-rank f whose content is a positive multiple of it
    full = torch.cat([3 * h[:, :c], h[:, c:]], dim=1)
    return result | {
        "f": rank(full),
        "composed": rank(full * D),
        "difference": float((alike(full * D) - alike(flat)).abs().max()),
    }


def frame(settings: Settings, seed: int) -> dict[str, Any]:
    """Class means on the sphere after training on pairs of a class."""
    K, d = settings.classes, settings.d
    draw = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(K, d, generator=draw)
    torch.manual_seed(seed)
    f = cs.models.MLP(d, settings.d_etf, depth=3, width=64, init="orthogonal")
    loss_of = cs.InfoNCE(cs.Cosine(tau=settings.tau_sphere), cs.SameView(), anchors="first")

    def batch(n: int) -> tuple[Tensor, list[Tensor]]:
        labels = torch.randint(K, (n,), generator=draw)
        noise = settings.noise * torch.randn(2, n, d, generator=draw)
        return labels, [centres[labels] + each for each in noise]

    pair = lambda step: batch(settings.batch)[1]
    fitted(f, loss_of, pair, settings.steps_etf, settings.lr, falling=False)
    labels, (x, _) = batch(2000)
    with torch.no_grad():
        u = f(x)
        u = u / u.norm(dim=1, keepdim=True)
    means = torch.stack([u[labels == k].mean(dim=0) for k in range(K)])
    left = (u - means[labels]).square().sum(dim=1).mean() / (u - u.mean(dim=0)).square().sum(
        1
    ).mean()
    apart = means - means.mean(dim=0)
    apart = apart / apart.norm(dim=1, keepdim=True)
    cosines = means / means.norm(dim=1, keepdim=True)
    table = cosines @ cosines.T
    off = table[~torch.eye(K, dtype=torch.bool)]
    return {
        "cosines": table.tolist(),
        "error": float((off + 1 / (K - 1)).abs().max()),
        "within": float(left),
    }


def shielded(settings: Settings, space: str, seed: int) -> dict[str, Any]:
    """R^2 of style and content before and after the last two layers."""
    norm = space == "sphere"
    f, source = layers.trained(settings, space, norm, "one", seed)
    return layers.read(settings, f, source, norm)


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """All parts over the seeds."""
    result: dict[str, Any] = {
        name: getattr(settings, name) for name in ("steps", "steps_etf", "content", "d", "classes")
    }
    result["scales"] = list(settings.scales)
    result["scaling"] = [scaling(settings, seed) for seed in settings.seeds]
    result["style_alone"] = [style_alone(settings, seed) for seed in settings.seeds]
    result["ranks"] = [ranks(settings, seed) for seed in settings.seeds]
    result["etf"] = [keep(f"etf {s}", lambda s=s: frame(settings, s)) for s in settings.seeds]
    for space in ("box", "sphere"):
        result[space] = [
            keep(f"{space} {s}", lambda sp=space, s=s: shielded(settings, sp, s))
            for s in settings.seeds
        ]
    return result


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Optima, ranks, the frame and the shield."""
    rows, ranked = result["scaling"], result["ranks"]
    of = lambda what: [row[what] for row in ranked]
    alone = result["style_alone"]
    ends = lambda name, end: [end(row[name]) for row in alone]
    drop = lambda space: [row["style"][-3] - row["style"][-1] for row in result[space]]
    return [
        INFIMUM.judge(
            expected={
                "loss": [row["collapsed"][0] for row in rows],
                "loss_of_inverse": [row["inverse"] for row in rows],
            },
            ours={name: [row[name][-1] for row in rows] for name in ("collapsed", "full_rank")},
        ),
        STYLE_ALONE.judge(
            printed={"norm_ratio": ends("norm_ratio", max)},
            corrected={
                "norm_ratio": ends("norm_ratio", max),
                "norm_of_zero": [row["norm_of_zero"] for row in alone],
                "repulsion_rise": ends("repulsion_rise", min),
                "excess_of_zero": [row["loss_of_zero"] - row["best_loss"] for row in alone],
                "loss_of_zero": [row["loss_of_zero"] for row in alone],
                "draws": sum(len(row["norm_ratio"]) for row in alone),
            },
        ),
        SUBOPTIMAL.judge(
            content_scaled=[row["full_rank"][-1] for row in rows],
            inverse=[row["inverse"] for row in rows],
            far_without_content=[row["no_content"][-1] for row in rows],
            best_without_content=[min(row["no_content"]) for row in rows],
        ),
        NONLINEAR.judge(
            difference=[
                max(abs(a - b) for a, b in zip(row["collapsed"], row["nonlinear"], strict=True))
                for row in rows
            ]
        ),
        RANK.judge(
            expected={
                "rank_first": [row["near"]["ranks"][0] for row in ranked],
                "content": result["content"],
            },
            ours={
                "rank_last": [row["near"]["ranks"][1] for row in ranked],
                "rank_linear": [row["near"]["ranks"][2] for row in ranked],
                "content": result["content"],
                "loss": [row["near"]["loss"] for row in ranked],
                "far_gradient": [row["far"]["gradient"] for row in ranked],
            },
        ),
        FIX.judge(
            printed={"rank_composed": of("composed"), "d": result["d"]},
            corrected={
                "rank_f": of("f"),
                "rank_composed": of("composed"),
                "difference": of("difference"),
                "d": result["d"],
                "content": result["content"],
            },
        ),
        ETF.judge(
            cosine_error=[row["error"] for row in result["etf"]],
            within=[row["within"] for row in result["etf"]],
            steps_etf=result["steps_etf"],
        ),
        SHIELD.judge(drop_box=drop("box"), drop_sphere=drop("sphere"), steps=result["steps"]),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """The loss against content's scale, the class means, and R^2 before and after."""
    canvas, axes = style.canvas(1, 3, width=3.1)
    scale, means, shield = axes[0]
    row = result["scaling"][0]
    for i, (name, text) in enumerate(
        (
            ("collapsed", "content alone"),
            ("full_rank", "content scaled, style kept"),
            ("no_content", "no content, all scaled"),
        )
    ):
        scale.plot(result["scales"], row[name], "o-", color=style.COLOURS[i], label=text)
    scale.axhline(row["inverse"], color=style.GREY, linestyle="--", label="f = g^-1")
    scale.set_xscale("log")
    scale.set_yscale("symlog", linthresh=0.01)
    scale.set_ylim(-0.005, 1e10)
    scale.legend(loc="upper left")
    style.label(scale, "scale", "eq. (4), mean", "an infimum, not an optimum")
    K = result["classes"]
    table = np.array(result["etf"][0]["cosines"])
    picture = means.imshow(table, vmin=-1, vmax=1, cmap="Greys")
    for i in range(K):
        for j in range(K):
            ink = "white" if table[i, j] > 0.3 else "black"
            means.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", fontsize=7, color=ink)
    means.grid(False)
    means.set_xticks(range(K))
    means.set_yticks(range(K))
    canvas.colorbar(picture, ax=means, shrink=0.8)
    style.label(means, "class", "class", f"cosines of class means, ETF {-1 / (K - 1):.2f}")
    for i, space in enumerate(("box", "sphere")):
        for j, what in enumerate(("content", "style")):
            for k, (at, alpha) in enumerate(((-3, 1.0), (-1, 0.45))):
                values = [each[what][at] for each in result[space]]
                place = 2.6 * i + 1.1 * j + 0.45 * k
                shield.bar(place, np.mean(values), 0.42, color=style.COLOURS[j], alpha=alpha)
                shield.plot([place] * len(values), values, ".", color="black", markersize=3)
    shield.set_xticks(
        [0.22, 1.32, 2.82, 3.92], ["box\ncontent", "box\nstyle", "sphere\ncontent", "sphere\nstyle"]
    )
    style.label(
        shield,
        "before (full) and after (pale) the projector",
        "R^2, held out",
        "the projector shields",
    )
    return canvas
