"""Lemmas 3, 5-7, Props 2, 3: how a linear encoder moves, and what its gradient knows of content.

Paper: rusak2022, App. C, eqs. (4)-(18), App. A. A linear encoder z = W x of pairs x, x~ with
d = x - x~. The gradient of eq. (4), one sum over anchors, is exactly

    dL/dW = W [ sum_i (1 - a_ii) d_i d_i' - sum_ij a_ij (x_i - x_j)(x_i - x_j)' ]

and at W -> 0, where all a = 1 / (M+1), with Sx and S~ the covariances of x and of d,

    dW/dt = W [ 2 (M+1) Sx - M S~ ].

Errata, typos and remarks of ours (each claim says which). Lemma 5 prints Sx without its 2: it
forgets that negatives carry gradient (with negatives held fixed the printed form is right; measured
too). Its proof lets a_ij -> 1/M for M -> infinity; that needs W -> 0, and more negatives do not
help. Lemma 3 says a product is singular iff both factors are: one is enough; what is used of it, of
a product that is zero, is right. After eq. (15) the sign of the definite matrix is reversed. Prop.
2: the gap between content and style in the gradient is 1 / (1 - r/2), r the variance of style in a
pair over that of the marginal, and drowns in sampling noise where r is small: with 10,000 pairs d_c
is found in 98 % of trials at r = 0.2 and in 14 % at 0.05; the spectrum of S~ in units of Sx finds
d_c for every r and every linear mixing.

Prop. 3, "a heuristic", is to bring the gradients to the same order of magnitude, and moves them
apart. A temperature divides every exponent of its dimension: near W = 0 the gradient of row k is
W_k / tau_k times (2 sigma_z^2 - sigma_k^2), or (sigma_z^2 - sigma_k^2) by eq. (5). Content's
gradient is the larger one already (Lemma 7), here by a factor of 1.3. tau_c = sigma_c / sigma_s < 1
multiplies the ratio by sigma_s / sigma_c under both laws (by its square if tau divides z and not
|z|^2), without bound as content comes to vary less; for true content the rule is 0 and no
temperature. What equalises at the start is tau_c / tau_s = (2 sigma_z^2 - sigma_c^2) / (2 sigma_z^2
- sigma_s^2) > 1: above 1 as in Sec. 3, and not below as in Sec. 4. The rule is right under one
reading: if tau divides z in the positive pair's term alone, eq. (16) is the gradient, and sigma_c^2
/ tau_c^2 = sigma_s^2. But eq. (1) divides all terms by tau.

Two rules were changed after quick runs at which they failed for noise: C6.larger is judged on the
pooled draws, and C6.count draws more pairs. The laptop runs came later, under these rules. C6.rule
now also asks that the ratio be no larger than without a temperature, and measures the factor.

Deviations: the paper measures none of this. Eq. (4) writes its outer sum twice; we take it once, as
the proof of Lemma 5 does. Latents are uniform in a box, mixed by an orthogonal map, or a linear one
where that is said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Remark, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

EXACT = Stated(
    "C6.gradient",
    "the gradient of eq. (4) is W times a difference of weighted covariances",
    "App. C, eqs. (6)-(9), with the gradient of the negatives",
    "eq. (9)",
    "error < 1e-10",
)
ZERO = Stated(
    "C6.zero",
    "collapsing everything, W = 0, gives log(1 + M) an anchor",
    "App. C, consequences for the optimal loss",
    "log(1 + M)",
    "error < 1e-12",
)
FACTOR = Erratum(
    "C6.factor",
    "Lemma 5, eq. (5)",
    "dW/dt = (M+1) W [Sx - S~].",
    "error < 0.05",
    "dW/dt = W [2 (M+1) Sx - M S~] for small W; the printed form needs negatives held fixed.",
    "error < 1e-4 and printed_with_fixed_negatives < 0.05",
    quote="the temporal dynamics (i.e., the negative gradient) of the weight matrix W depends on "
    "the marginal (Sx) and conditional (S~) data covariance matrices. dW/dt = W (M+1) [Sx - S~]",
    why="the negatives pass through the same W; the proof differentiates z_i and its positive "
    "only. With negatives held fixed the printed form is right, but that is not the "
    "negative gradient",
)
ALPHA = Erratum(
    "C6.alpha",
    "proof of Lemma 5",
    "a_ij -> 1/M for M -> infinity.",
    "spread_at_most_negatives < 0.05",
    "a_ij -> 1/M for W -> 0, with |W|^2.",
    "spread_at_least_weight < 0.01 and slope > 1.9 and slope < 2.1",
    quote="We note that as M -> infinity, due to sum_j alpha_ij = 1: alpha_ij -> 1/M",
    why="sum_j alpha_ij = 1 is a mean of 1/M, not a limit of each term. As absolute numbers both "
    "go to 0; the proof sums M + 1 of them (eqs. 10, 13), so it needs their ratio to go to 1, and "
    "for fixed W that keeps its spread however large M is",
)
BATCH = Stated(
    "C6.batch",
    "fewer samples than dimensions give covariances without full rank; more improve the condition",
    "Lemma 6",
    "M + 1 < d is rank-deficient",
    "rank_of_few < d and condition_of_many < condition_of_some",
)
LARGER = Stated(
    "C6.larger",
    "gradients are larger in content dimensions, near W = 0 at every r and at W = I for r >= 0.2",
    "Lemma 7",
    "larger",
    "ratio_at_zero > 1 and ratio_at_one > 1",
    enough="trials >= 100",
)
COUNT = Remark(
    "C6.count",
    "Prop. 2, from finite samples",
    "the gradient's spectrum tells d_c whatever the variance of style.",
    "found_small_style >= 0.9",
    "it does where that variance is large enough; the spectrum of S~ in units of Sx always.",
    "found_large_style >= 0.9 and found_whitened >= 0.9",
    enough="trials >= 100",
)
RULE = Erratum(
    "C6.rule",
    "App. C, Prop. 3 and the sentence before it",
    "tau_c = sigma_c / sigma_s brings the gradients of content and style to the same order of "
    "magnitude.",
    "ratio < 10 and ratio <= untempered",
    "it multiplies their ratio by sigma_s / sigma_c; tau_c / tau_s = (2 sigma_z^2 - sigma_c^2) / "
    "(2 sigma_z^2 - sigma_s^2) equalises them, and exceeds 1.",
    "ratio < 1.1 and tau_c > 1 and factor_error < 1e-3 and factor_error_eq_5 < 1e-3",
    quote="we can use this insight to propose a heuristic how to scale the different gradients "
    "such that they will have the same order of magnitude: Proposition 3. The temperature for z^c "
    "should be tau_c ~ sqrt(alpha_c) = sigma_c / sigma_s if tau_s = 1",
    why="by Lemma 7, just before, content's gradient is the larger one already. To divide "
    "content by tau_c < 1 multiplies the ratio of the gradients by sigma_s / sigma_c > 1, under "
    "eq. (5) as well as under the corrected law, so the rule moves away from equality. There is "
    "one reading under which it is right: tau divides z in the term of the positive pair alone, "
    "as eq. (16) has it (ratio_positive_alone). But eq. (1) divides all terms by tau. That it is "
    "called a heuristic concerns how near to equal, not the direction",
)
SINGULAR = Erratum(
    "C6.singular",
    "App. A, Lemma 3",
    "A B is singular iff both are.",
    "exceptions == 0",
    "A B is singular iff at least one is; A B = 0 only if both are singular or one is zero.",
    "exceptions == 0 and exceptions_of_zero == 0",
    quote="For square matrices A, B in R^{n x n}, the product AB is singular if and only if both "
    "A, B are singular -- including the case when any of both is the zero matrix 0 in R^{n x n}",
    why="det AB = det A det B: one singular factor is enough. What follows from the lemma is right "
    "all the same: it is used of a product that is zero, W [Sx - S~] = 0, and with a definite "
    "second factor W must be 0",
)
SIGN = Erratum(
    "C6.sign",
    "after eq. (15)",
    "S~ - Sx is positive definite for informative conditionals.",
    "least > 0",
    "Sx - S~ is.",
    "least > 0",
    quote="[S~ - Sx] cannot be negative semi-definite, it will remain positive definite",
    why="two sentences later the paper has [Sx - S~]",
    kind="typo",
)
CLAIMS = (EXACT, ZERO, FACTOR, ALPHA, BATCH, LARGER, COUNT, RULE, SINGULAR, SIGN)


@dataclass(frozen=True)
class Settings:
    """Latents and sizes.

    Args:
        seeds: a sample and a mixing each.
        d: 8 [Sec. 4.1, linear].
        content: d_c; 2 is one of those of Fig. 1.
        n: pairs, M = n - 1; Fig. 1 does not say.
        style: std of the normal conditional, for all but Prop. 2; ours, below the box's 0.289.
        ratios: r, variance of style over that of the marginal, for Prop. 2 and Lemma 7.
        shares: sigma_c over sigma_s, for Prop. 3; Assum. 4 has it far below 1.
        trials: samples for each r.
        pairs: of each; 10^4 as in Table 1.
        weights: scales of W, for the small-W limit.
        negatives: numbers M, for the limit of many.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    d: int = 8
    content: int = 2
    n: int = 1000
    style: float = 0.2
    ratios: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
    shares: tuple[float, ...] = (0.25, 0.1, 0.05, 0.02)
    trials: int = 50
    pairs: int = 10_000
    weights: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0, 3.0)
    negatives: tuple[int, ...] = (30, 100, 300, 1000, 3000)


QUICK = Settings(seeds=(0,), n=300, trials=3, pairs=2000, negatives=(30, 300))
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), n=5000, trials=200)

VARIANCE = 1 / 12
"""Of the uniform marginal on [0, 1]."""


def pairs(settings: Settings, std: float, seed: int, mixing: Any, soft: float = 0.0) -> Any:
    """Pairs (n, d) as float64 tensors."""
    kept = cs.data.Normal(soft) if soft else cs.data.Delta()
    process = cs.data.Process(
        cs.data.Box(settings.d), settings.content, cs.data.Normal(std), kept=kept, mixing=mixing
    )
    sample = process.sample(settings.n, seed=seed)
    return torch.from_numpy(sample.x1), torch.from_numpy(sample.x2)


def equation_4(
    z: Tensor, z2: Tensor, negatives: Tensor | None = None, tau: Tensor | float = 1.0
) -> Tensor:
    """Eq. (4) with its outer sum once: the positive z2_i against the other rows of z.

    `tau` divides z in the term of the positive pair alone.
    """
    w = z if negatives is None else negatives
    attract = -((z - z2) / tau).square().sum(dim=1) / 2
    others = -(z[:, None] - w[None]).square().sum(dim=2) / 2
    others = others.masked_fill(torch.eye(len(z), dtype=torch.bool), -math.inf)
    return (torch.logsumexp(torch.cat([attract[:, None], others], 1), 1) - attract).sum()


def slope(
    x: Tensor, x2: Tensor, W: Tensor, fixed: bool = False, tau: Tensor | float = 1.0
) -> Tensor:
    """-dL/dW by automatic differentiation; with negatives held fixed if asked."""
    W = W.clone().requires_grad_()
    z, z2 = x @ W.T, x2 @ W.T
    return -torch.autograd.grad(equation_4(z, z2, z.detach() if fixed else None, tau), W)[0]


def shares(x: Tensor, x2: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """a_ii (n,) and a_ij (n, n), zero on the diagonal."""
    z, z2 = x @ W.T, x2 @ W.T
    attract = -(z - z2).square().sum(dim=1) / 2
    others = -torch.cdist(z, z).square() / 2
    others.fill_diagonal_(-math.inf)
    a = torch.softmax(torch.cat([attract[:, None], others], 1), 1)
    return a[:, 0], a[:, 1:]


def formula(x: Tensor, x2: Tensor, W: Tensor) -> Tensor:
    """-dL/dW in closed form."""
    own, a = shares(x, x2, W)
    moved = x - x2
    attract = (moved * (1 - own)[:, None]).T @ moved
    # sum_ij a_ij (x_i - x_j)(x_i - x_j)' without the n x n x d differences
    both = a + a.T
    repel = (x * both.sum(dim=1)[:, None]).T @ x - x.T @ both @ x
    return W @ (repel - attract)


def covariances(x: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """Sx of the samples and S~ of the differences inside pairs."""
    centred, moved = x - x.mean(dim=0), x - x2
    return centred.T @ centred / len(x), moved.T @ moved / len(x)


def apart(actual: Tensor, expected: Tensor) -> float:
    """Relative difference in norm."""
    return float((actual - expected).norm() / expected.norm())


def dynamics(settings: Settings, seed: int) -> dict[str, Any]:
    """The identity, Lemma 5 at several scales of W, and the shares a_ij."""
    g = cs.data.Orthogonal(settings.d, seed=seed)
    x, x2 = pairs(settings, settings.style, seed, g)
    draw = torch.Generator().manual_seed(seed)
    direction = torch.randn(settings.d, settings.d, generator=draw, dtype=torch.float64)
    direction = torch.linalg.qr(direction)[0]
    Sx, Sm = covariances(x, x2)
    n, M = len(x), len(x) - 1
    rows: dict[str, Any] = {"printed": [], "corrected": [], "fixed": [], "exact": [], "spread": []}
    for scale in settings.weights:
        W = scale * direction
        auto = slope(x, x2, W)
        rows["exact"].append(apart(formula(x, x2, W), auto))
        rows["printed"].append(apart(n * W @ (Sx - Sm), auto))
        rows["corrected"].append(apart(n * W @ slope_near_zero(Sx, Sm, n), auto))
        rows["fixed"].append(apart(n * W @ (Sx - Sm), slope(x, x2, W, fixed=True)))
        rows["spread"].append(_spread(shares(x, x2, W)[1]))
    rows["spread_of_negatives"] = []
    for m in settings.negatives:
        more = Settings(**{**vars(settings), "n": m + 1})
        y, y2 = pairs(more, settings.style, seed, g)
        rows["spread_of_negatives"].append(_spread(shares(y, y2, direction)[1]))
    zero = equation_4(torch.zeros_like(x), torch.zeros_like(x)) / n
    rows["zero"] = abs(float(zero) - math.log(1 + M))
    few = covariances(x[: settings.d - 2], x2[: settings.d - 2])[0]
    rows["rank_of_few"] = int(torch.linalg.matrix_rank(few))
    conditions = [covariances(x[:k], x2[:k])[0] for k in (settings.d + 2, n)]
    rows["conditions"] = [float(torch.linalg.cond(S)) for S in conditions]
    rows["least"] = [float(torch.linalg.eigvalsh(S)[0]) for S in (Sm - Sx, Sx - Sm)]
    return rows


def _spread(a: Tensor) -> float:
    """Standard deviation of a_ij over its mean, over all j other than i."""
    off = a[~torch.eye(len(a), dtype=torch.bool)]
    return float(off.std() / off.mean())


def gap(values: np.ndarray) -> int:
    """How many values stand before the largest gap, in ratio, of a falling list."""
    falling = np.maximum(np.sort(values)[::-1], 1e-12)
    return int(np.argmax(falling[:-1] / falling[1:])) + 1


def counted(settings: Settings, r: float, seed: int) -> dict[str, Any]:
    """d_c read from the gradient near W = 0, and from S~ in units of Sx; content's over style's."""
    std, c, n = math.sqrt(r * VARIANCE), settings.content, settings.pairs
    many = Settings(**{**vars(settings), "n": n})
    counts: dict[str, Any] = {"gradient": 0, "whitened": 0, "zero": 0.0}
    for trial in range(settings.trials):
        z, z2 = pairs(many, std, 1000 * seed + trial, None)
        G = slope_near_zero(*covariances(z, z2), n)  # an orthogonal mixing turns it, no more
        spectrum = torch.linalg.svdvals(G).numpy()
        counts["gradient"] += gap(spectrum) == c
        size = G.diagonal()
        counts["zero"] += float(size[:c].mean() / size[c:].mean()) / settings.trials
        A = torch.from_numpy(cs.data.Linear(settings.d, seed=trial).weight)
        Sx, Sm = covariances(z @ A.T, z2 @ A.T)
        root = torch.linalg.cholesky(Sx)
        inner = torch.linalg.solve(root, torch.linalg.solve(root, Sm).T)
        stays = np.maximum(torch.linalg.eigvalsh(inner).numpy(), 1e-6)
        counts["whitened"] += gap(1 / stays) == c
        if trial == 0:
            counts["spectrum"] = (spectrum / spectrum[0]).tolist()
    x, x2 = pairs(settings, std, seed, None)
    size = formula(x, x2, torch.eye(settings.d, dtype=torch.float64)).diagonal()
    counts["one"] = float(size[:c].mean() / size[c:].mean())
    return counts


def slope_near_zero(Sx: Tensor, Sm: Tensor, n: int) -> Tensor:
    """-dL/dW / W for W -> 0, an anchor."""
    return 2 * Sx - (n - 1) / n * Sm


def ruled(settings: Settings, share: float, seed: int) -> dict[str, Any]:
    """Gradients of content over those of style, diagonal W near 0, by the temperature of content.

    The larger over the smaller: 1 is equal. `factor` is by how much the printed temperature
    multiplies the ratio of content's to style's; `eq_5` the same with negatives held fixed, where
    the gradient is that of eq. (5). `positive_alone` is the ratio if the printed temperature
    divides z in the term of the positive pair alone.
    """
    std, c = settings.style, settings.content
    soft = share * std
    x, x2 = pairs(settings, std, seed, None, soft=soft)
    eye = 1e-3 * torch.eye(settings.d, dtype=torch.float64)
    top = 2 * VARIANCE
    taus = {
        "untempered": 1.0,
        "printed": share,
        "corrected": (top - soft**2) / (top - std**2),
    }
    by = lambda tau: torch.tensor([tau] * c + [1.0] * (settings.d - c), dtype=torch.float64)

    def ratio(rows: Tensor) -> float:
        own = rows.diagonal()
        return float(own[:c].mean() / own[c:].mean())

    # a diagonal W commutes with 1/root
    tempered = lambda of, tau: ratio(of(x / by(tau).sqrt(), x2 / by(tau).sqrt(), eye))
    both = {name: tempered(formula, tau) for name, tau in taus.items()}
    both["positive_alone"] = ratio(slope(x, x2, eye, tau=by(share)))
    fixed = lambda x, x2, W: slope(x, x2, W, fixed=True)
    return {
        "tau": taus,
        "factor": both["printed"] / both["untempered"],
        "eq_5": tempered(fixed, share) / tempered(fixed, 1.0),
        **{name: max(one, 1 / one) for name, one in both.items()},
    }


def products(seed: int) -> dict[str, int]:
    """Exceptions to both forms of Lemma 3 among products of random matrices, some singular."""
    draw = np.random.default_rng(seed)
    singular = lambda X: int(np.linalg.matrix_rank(X)) < 5
    both, one, of_zero = 0, 0, 0
    for _ in range(40):
        A, B = draw.normal(size=(2, 5, 5))
        turn, kept = np.linalg.qr(draw.normal(size=(5, 5)))[0], np.arange(5) < draw.integers(6)
        # A reads some directions, B writes into the others: A B = 0
        zero = (A @ (turn * kept) @ turn.T, turn @ ((turn * ~kept).T @ B))
        is_zero = [bool(np.abs(X).max() < 1e-12) for X in (*zero, zero[0] @ zero[1])]
        of_zero += not (is_zero[2] and (is_zero[0] or is_zero[1] or all(map(singular, zero))))
        for X in (A, B):
            if draw.random() < 0.5:
                X[0] = X[1]
        flat = [singular(X) for X in (A, B, A @ B)]
        both += flat[2] != (flat[0] and flat[1])
        one += flat[2] != (flat[0] or flat[1])
    return {"both": both, "one": one, "of_zero": of_zero}


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Everything over the seeds."""
    result: dict[str, Any] = {
        "weights": list(settings.weights),
        "negatives": list(settings.negatives),
        "ratios": list(settings.ratios),
        "shares": list(settings.shares),
        "trials": settings.trials * len(settings.seeds),
        "d": settings.d,
    }
    result["dynamics"] = [
        keep(f"dynamics {seed}", lambda s=seed: dynamics(settings, s)) for seed in settings.seeds
    ]
    result["counted"] = [
        [
            keep(f"count {seed} {r}", lambda s=seed, r=r: counted(settings, r, s))
            for r in settings.ratios
        ]
        for seed in settings.seeds
    ]
    result["ruled"] = [
        [ruled(settings, share, seed) for share in settings.shares] for seed in settings.seeds
    ]
    result["products"] = [products(seed) for seed in settings.seeds]
    return result


def shown(result: dict[str, Any], what: str) -> list[float]:
    """Share of trials in which d_c was found, for each r."""
    per = result["trials"]
    rows = result["counted"]
    return [sum(row[i][what] for row in rows) / per for i in range(len(result["ratios"]))]


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Identities, then Lemmas 5 to 7, Props 2, 3, Lemma 3 and the sign."""
    rows, small = result["dynamics"], result["weights"]
    least = [i for i, scale in enumerate(small) if scale <= 1e-2]
    slopes = [
        math.log(row["spread"][least[-1]] / row["spread"][0])
        / math.log(small[least[-1]] / small[0])
        for row in rows
    ]
    by_gradient, by_pairs = shown(result, "gradient"), shown(result, "whitened")
    ratios = result["ratios"]
    mean = lambda what, least: [
        sum(row[i][what] for row in result["counted"]) / len(rows)
        for i, r in enumerate(ratios)
        if r >= least
    ]
    by_share = lambda what: [
        sum(one[what] for one in same) / len(same) for same in zip(*result["ruled"], strict=True)
    ]
    factor_errors = lambda what: [
        max(abs(share * one[i][what] - 1) for one in result["ruled"])
        for i, share in enumerate(result["shares"])
    ]
    return [
        EXACT.judge(error=[max(row["exact"]) for row in rows]),
        ZERO.judge(error=[row["zero"] for row in rows]),
        FACTOR.judge(
            printed={"error": [row["printed"][0] for row in rows]},
            corrected={
                "error": [row["corrected"][0] for row in rows],
                "printed_with_fixed_negatives": [row["fixed"][0] for row in rows],
            },
        ),
        ALPHA.judge(
            printed={"spread_at_most_negatives": [row["spread_of_negatives"][-1] for row in rows]},
            corrected={
                "spread_at_least_weight": [row["spread"][0] for row in rows],
                "slope": slopes,
            },
        ),
        BATCH.judge(
            rank_of_few=[row["rank_of_few"] for row in rows],
            d=result["d"],
            condition_of_many=[row["conditions"][1] for row in rows],
            condition_of_some=[row["conditions"][0] for row in rows],
        ),
        LARGER.judge(
            ratio_at_zero=mean("zero", 0.0),
            ratio_at_one=mean("one", 0.2),
            trials=result["trials"],
        ),
        COUNT.judge(
            expected={
                "found_small_style": [
                    x for x, r in zip(by_gradient, ratios, strict=True) if r <= 0.1
                ]
            },
            ours={
                "found_large_style": [
                    x for x, r in zip(by_gradient, ratios, strict=True) if r >= 0.5
                ],
                "found_whitened": by_pairs,
                "trials": result["trials"],
            },
        ),
        RULE.judge(
            printed={"ratio": by_share("printed"), "untempered": by_share("untempered")},
            corrected={
                "ratio": by_share("corrected"),
                "tau_c": [one["tau"]["corrected"] for one in result["ruled"][0]],
                "factor": by_share("factor"),
                "factor_error": factor_errors("factor"),
                "factor_error_eq_5": factor_errors("eq_5"),
                "ratio_positive_alone": by_share("positive_alone"),
                "share": result["shares"],
            },
        ),
        SINGULAR.judge(
            printed={"exceptions": [row["both"] for row in result["products"]]},
            corrected={
                "exceptions": [row["one"] for row in result["products"]],
                "exceptions_of_zero": [row["of_zero"] for row in result["products"]],
            },
        ),
        SIGN.judge(
            printed={"least": [row["least"][0] for row in rows]},
            corrected={"least": [row["least"][1] for row in rows]},
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Lemma 5 against the scale of W, the gradient's spectrum, and d_c found."""
    canvas, axes = style.canvas(1, 3, width=3.1)
    error, spectrum, count = axes[0]
    row = result["dynamics"][0]
    for i, (name, text) in enumerate(
        (
            ("printed", "eq. (5) as printed"),
            ("fixed", "same, negatives fixed"),
            ("corrected", "with the factor 2"),
        )
    ):
        error.loglog(result["weights"], row[name], "o-", color=style.COLOURS[i], label=text)
    error.legend()
    style.label(error, "scale of W", "relative error", "Lemma 5 against the gradient")
    chosen = [0, len(result["ratios"]) // 2, len(result["ratios"]) - 1]
    for i, at in enumerate(chosen):
        values = result["counted"][0][at]["spectrum"]
        places = range(1, len(values) + 1)
        text = f"r = {result['ratios'][at]:g}"
        spectrum.plot(places, values, "o-", color=style.COLOURS[i], label=text)
    spectrum.set_ylim(0, 1.05)
    spectrum.legend()
    style.label(spectrum, "singular value", "over the largest", "spectrum of the gradient")
    count.plot(result["ratios"], shown(result, "gradient"), "o-", label="gradient, Prop. 2")
    count.plot(result["ratios"], shown(result, "whitened"), "s-", label="pairs, whitened")
    count.set_xscale("log")
    count.set_ylim(-0.03, 1.05)
    count.legend()
    style.label(count, "variance of style in a pair, r", "share that find d_c", "reading d_c")
    return canvas
