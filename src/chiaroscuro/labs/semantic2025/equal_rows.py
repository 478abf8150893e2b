"""Thms 3.1, 4.2, Cor. 4.3, App. A.1 to A.5: what minimises the symbol-context loss, and for whom.

Paper: semantic2025, eq. (2), Thm 3.1 (with labels), Thm 4.2 and Cor. 4.3 (without), Lemma A.1,
Prop. A.2, the update rule of A.5, Defs 2.1 and 4.1.

The population loss of a task given as a table is a sum over all batches: what the theorems speak
of is computed, not sampled. With S = h_u . z_c,

    loss(S) = E_u E_{c ~ p(.|u)} E_{c_2, ..., c_n ~ p} [ log sum_j exp S(u, c_j) - S(u, c) ]

and S is a minimiser if and only if S(u, c) = log p(c|u) / p(c) + a(u), any a: the loss normalises
over contexts, so it does not see a function of the symbol.

Two losses. Eq. (2) normalises over contexts, and so do A.5 and the experiments; Lemma A.1, on which
every proof rests, and A.11 normalise over symbols. The minimisers of the lemma's loss are S(u, c) =
log p(u|c) / p(u) + b(c), any b. There equal laws give (h_u - h_v) . z_c = 0, a basis of d contexts
is enough, and Thms 3.1 and 4.2 hold as printed. Under eq. (2) they give (h_u - h_v) . z_c = a(u) -
a(v), one number for all c that need not be 0, so that h_u = h_v needs d + 1 affinely independent
contexts. (It is then true of *any* encoder, optimal or not: the loss of a row depends on p(.|u)
alone and is strictly convex in it.)

Errata: the text before Thm 3.1, and Sec. 6, name eq. (2) for the loss of the lemma. The conclusion
of Lemma A.1 takes the numerator exp(S) for the normalised f_i* of the line before, and no optimum
satisfies it unless symbols and contexts are independent: exp(S) of a pair is one number, and the
sum beside it changes with the batch. The theorems divide two such lines of one batch, and their
proofs survive. A typo: A.5 has the wrong index in the denominator (and a symbol that occurs twice
in a batch gets the sum of its rows). Remarks of ours: Prop. A.2 assumes p(c|u) = p(c|v), which
without labels is what h_u = h_v says, and not equivalence; with labels in the encoder both follow
from h_u = h_v and nothing need be assumed. Def. 4.1 lacks "for all u, v". CModAdd has contexts of
probability 0 given a symbol: there the loss has no minimiser, E* does not exist, and merging is the
work of weight decay or of a small start (E2, E3).

Deviations: none in the statements; the toys (six and eight symbols, laws drawn from a Dirichlet
law mixed with the uniform one) are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Remark, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

LOSS = Stated(
    "E1.loss",
    "the population loss is the mean of eq. (2) over all batches, for batches of two and of three",
    "eq. (2), Sec. 4",
    "an expectation",
    "error < 1e-12",
)
LEMMA = Erratum(
    "E1.lemma",
    "Lemma A.1, its conclusion",
    "at a minimum of the lemma's own risk exp(S) is p(u|c) / [p(u) sum_j p(s_j|c) / p(s_j)], in "
    "every batch.",
    "spread < 1e-10",
    "exp(S) over its sum over the batch is; the quotients f_u / f_v are exp(S_u - S_v) either way.",
    "gradient < 1e-10 and error < 1e-10 and quotient < 1e-10",
    quote="for all rho, y, sigma_1, ..., sigma_n: p(sigma_i|rho, y) = exp(sim(E*(sigma_i), "
    "E*(y, rho))) p(sigma_i) sum_j p(sigma_j|rho, y)/p(sigma_j)",
    why="it is the conclusion of the lemma, displayed in its statement, repeated as the last line "
    "of its proof and used in the proofs of Thms 3.1, 4.2 and Prop. A.2. It is false for every "
    "optimum, unless symbols and contexts are independent: exp(sim) of one pair is one number, and "
    "the sum over the batch changes with the batch, while the lemma says 'for all'. The line "
    "before has f_i*, the normalised softmax, and is right; f_i was exp(sim) earlier and is put in "
    "for it. Harmless for the theorems: their proofs divide two such lines of one batch, where the "
    "sums cancel",
)
UPDATE = Erratum(
    "E1.update",
    "App. A.5",
    "-c_k + sum_j alpha_j c_j is the gradient of the loss with denominator sum_j exp(s_j . c_j).",
    "error < 1e-10",
    "it is that of eq. (2), sum_j exp(s_i . c_j); a symbol that occurs twice gets the sum.",
    "error < 1e-10 and error_repeated < 1e-10",
    quote="sum_j exp(E(sigma_j)^T E(y_j, rho_j))",
    why="the next lines have sigma_i, as eq. (2) does",
    kind="typo",
)
LABELS = Stated(
    "E1.labels",
    "with labels, rows are equal for u = v with equal laws of contexts, and for no others",
    "Thm 3.1",
    "equal",
    "equal < 1e-4 and different > 0.1 and equivalent_elsewhere > 0.1 and excess < 1e-8",
)
UNLABELLED = Stated(
    "E1.aligned",
    "without labels, aligned: rows are equal exactly for equivalent symbols, however frequent",
    "Thm 4.2, Cor. 4.3",
    "equal if and only if equivalent",
    "equal < 1e-4 and different > 0.1 and excess < 1e-8",
)
ENCODER = Stated(
    "E1.encoder",
    "rows of equivalent symbols are equal for any fixed encoder with d + 1 affinely independent "
    "contexts, optimal or not",
    "stronger than Thm 4.2",
    "optimal encoders only",
    "equal < 1e-4 and excess > 1e-3",
)
BASIS = Erratum(
    "E1.basis",
    "Thm 4.2 (and 3.1), of a model that is optimal for L_NCE",
    "at a minimum of eq. (2) d contexts that form a basis make equal laws have equal rows.",
    "distance < 1e-4 and excess < 1e-8",
    "at a minimum of Lemma A.1's loss they do; under eq. (2) d + 1 affinely independent ones do.",
    "distance < 1e-4 and excess < 1e-8 and distance_d_plus_1 < 1e-4 and excess_d_plus_1 < 1e-8",
    quote="Given the symbols u, v such that: 1. for all rho: p(rho|u) = p(rho|v). 2. If there are "
    "rho_1, ..., rho_d contexts such that E*(rho_i) form a basis for R^d then e*(u) = e*(v)",
    why="Sec. 3 speaks of an optimal model for L_NCE, which is eq. (2), whose denominator sums "
    "over contexts. The paper prints that loss again above Thm 4.2, derives A.5 from it and "
    "trains by it, and Sec. 6 says of Thm 3.1: a model minimizing Equation 2. A constant a(u) "
    "added to all similarities of a symbol costs it nothing, and d contexts of a basis do not "
    "see it, so that equal laws can have different rows at its minimum. Only with the loss of "
    "Lemma A.1, on which the proofs rest and which sums over symbols, are the theorems right "
    "as printed",
)
PROPOSITION = Remark(
    "E1.proposition",
    "Prop. A.2, used for an optimum without labels (Cor. 4.3)",
    "equal rows and equal laws of contexts make symbols equivalent there too.",
    "label_distance < 1e-8",
    "equal rows of an optimum with labels do, and equal laws of contexts follow; Cor. 4.3 "
    "itself holds (E1.aligned).",
    "label_distance < 1e-8 and context_distance < 1e-8",
)
DEFINITION = Remark(
    "E1.definition",
    "Def. 4.1, without a quantifier",
    "one pair u, v for which both sides agree is enough.",
    "distance < 1e-4",
    "all pairs u, v are needed (split and merged are the shares of pairs that do not).",
    "distance < 1e-4 and split == 0 and merged == 0",
)
MINIMISER = Remark(
    "E1.minimiser",
    "Sec. 5: Thm 4.2, of an optimal model, applied to CModAdd",
    "CModAdd has a minimiser: beyond some size of the embedding the loss falls no more.",
    "best_scale < 16",
    "a law of full support has one (CModAdd with a tenth of the results drawn at random).",
    "best_scale < 16",
)
CLAIMS = (
    LOSS, LEMMA, UPDATE, LABELS, UNLABELLED, ENCODER, BASIS, PROPOSITION, DEFINITION, MINIMISER,
)  # fmt: skip

SCALES = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)


@dataclass(frozen=True)
class Settings:
    """Toys that can be summed.

    Args:
        seeds: a law and a start each.
        n_contexts: of the toys without labels; ours.
        n_labels: of the toy with labels; ours.
        iterations: of L-BFGS at most; ours.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n_contexts: int = 8
    n_labels: int = 3
    iterations: int = 1500


QUICK = Settings(seeds=(0,))
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(20)), n_contexts=16)


def objective() -> cs.InfoNCE:
    """Eq. (2)."""
    return cs.InfoNCE(cs.Dot(tau=1.0), cs.OtherView(), anchors="first")


def expected(S: Tensor, p: Tensor, n: int = 2) -> Tensor:
    """The population loss of similarities S (C, U) under pairs p (C, U), batches of n."""
    q = p.sum(dim=1)
    others = torch.cartesian_prod(*[torch.arange(len(q))] * (n - 1)).view(-1, n - 1)
    weight = q[others].prod(dim=1)
    rest = S[others].logsumexp(dim=1)  # (batches, U)
    gap = torch.logaddexp(S[:, None], rest[None]) - S[:, None]
    return (p[:, None] * weight[None, :, None] * gap).sum()


def over_symbols(S: Tensor, p: Tensor, n: int = 2) -> Tensor:
    """Lemma A.1's risk: as `expected`, but normalised over the symbols of a batch."""
    return expected(S.T, p.T, n)


def information(p: Tensor) -> Tensor:
    """log p(c|u) / p(c) = log p(u|c) / p(u), (C, U): a minimiser of both losses."""
    return p.log() - p.sum(dim=0).log() - p.sum(dim=1, keepdim=True).log()


def enumerated(h: Tensor, z: Tensor, p: Tensor, n: int) -> float:
    """The mean of the library's loss over all batches of n pairs, weighed by their law."""
    loss, total = objective(), 0.0
    for batch in itertools.product(range(p.numel()), repeat=n):
        c, u = np.unravel_index(np.array(batch), p.shape)
        total += float(p[c, u].prod() * loss(h[u], z[c]))
    return total


def minimised(
    task: cs.data.SymbolTask, d: int, seed: int, iterations: int, z: Tensor | None = None
) -> dict[str, Any]:
    """Rows h of symbols (and z of contexts, unless given) at the minimum, from a random start."""
    p = torch.from_numpy(task.pairs())
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(sum(p.shape), d, generator=generator, dtype=torch.float64)
    h = start[: p.shape[1]].clone().requires_grad_()
    free = [h] if z is not None else [h, start[p.shape[1] :].clone().requires_grad_()]
    z = free[-1] if z is None else z
    solved(free, lambda: expected(z @ h.T, p), iterations)
    with torch.no_grad():
        least = expected(information(p), p)
        excess = float(expected(z @ h.T, p) - least)
        rank = int(torch.linalg.matrix_rank(z[1:] - z[0]))
    return {"h": h.tolist(), "excess": excess, "affine_rank": rank}


def solved(free: list[Tensor], loss: Callable[[], Tensor], iterations: int) -> None:
    """Move tensors to the minimum of an expected loss: no pairs are drawn."""
    solver = torch.optim.LBFGS(
        free, max_iter=iterations, max_eval=2 * iterations, history_size=50,
        tolerance_grad=1e-10, tolerance_change=1e-18, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        solver.zero_grad()
        value = loss()
        value.backward()
        return value

    solver.step(closure)


def law(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random laws of full support along the last axis."""
    return 0.8 * rng.dirichlet(np.ones(shape[-1]), size=shape[:-1]) + 0.2 / shape[-1]


def distances(h: list[list[float]]) -> np.ndarray:
    """Between all rows."""
    x = torch.tensor(h, dtype=torch.float64)
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").numpy()


def apart(h: list[list[float]], classes: np.ndarray) -> tuple[float, float]:
    """The largest distance of rows of one class, and the smallest of two."""
    t = distances(h)
    same = classes[:, None] == classes
    off = ~np.eye(len(classes), dtype=bool)
    return float(t[same].max()), float(t[~same & off].min())


# ---- the toys ----


def aligned_task(settings: Settings, seed: int) -> tuple[cs.data.SymbolTask, np.ndarray]:
    """Six symbols, not equally frequent, whose contexts follow their class modulo 3."""
    rng = np.random.default_rng([seed, 1])
    down = cs.data.mod_add(n=6, k=3)
    classes = cs.diagnostics.equivalence(down.by_symbol(), exact=True).classes
    given = law(rng, 3, settings.n_contexts)[classes]
    frequency = law(rng, 6)
    return cs.data.SymbolTask((given * frequency[:, None]).T), classes


def labelled_task(settings: Settings, seed: int) -> tuple[cs.data.SymbolTask, np.ndarray]:
    """Eight symbols: pairs of one meaning; those of the last pair have contexts of their own."""
    rng = np.random.default_rng([seed, 2])
    meaning, use = np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 0, 1, 1, 2, 2, 3, 4])
    contexts = law(rng, 5, 4)[use]  # (S, C)
    labels = law(rng, 4, 4, settings.n_labels)[meaning]  # (S, C, Y)
    joint = law(rng, 8)[:, None, None] * contexts[:, :, None] * labels
    return cs.data.SymbolTask(joint.transpose(1, 0, 2)), use


def with_labels(settings: Settings, seed: int) -> dict[str, Any]:
    """Thm 3.1 and Prop. A.2: labels are part of the context."""
    task, use = labelled_task(settings, seed)
    minimum = minimised(task.with_labels_shown(), 5, seed, settings.iterations)
    equal, _ = apart(minimum["h"], use)
    t = distances(minimum["h"])
    meaning = cs.diagnostics.equivalence(task.by_symbol(), exact=True)
    contexts = cs.diagnostics.context_distances(task.given_symbol())
    off = ~np.eye(len(t), dtype=bool)
    merged = (t < 1e-3) & off
    return {
        "equal": equal,
        "different": float(t[~meaning.same].min()),
        "equivalent_elsewhere": float(t[6, 7]),
        "excess": minimum["excess"],
        "label_distance": float(meaning.distance[merged].max()),
        "context_distance": float(contexts[merged].max()),
        "distances": t.tolist(),
    }


def without_labels(settings: Settings, seed: int) -> dict[str, Any]:
    """Thm 4.2, Cor. 4.3; any encoder; the basis; Def. 4.1 and Prop. A.2."""
    task, classes = aligned_task(settings, seed)
    best = minimised(task, 3, seed, settings.iterations)
    equal, different = apart(best["h"], classes)

    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(task.n_contexts, 3, generator=generator, dtype=torch.float64)
    fixed = minimised(task, 3, seed, settings.iterations, z)

    aligned = cs.diagnostics.distributional_alignment(task.given_symbol(), classes, exact=True)
    # the pair 0, 3 stays as it is, symbol 4 gets a law of its own
    pairs = task.pairs().copy()
    pairs[:, 4] = pairs[::-1, 4]
    strange = minimised(cs.data.SymbolTask(pairs), 4, seed, settings.iterations)
    t = distances(strange["h"])
    # Prop. A.2 without labels: 0 and 3 are used alike, and a task modulo 6 tells them apart
    meaning = cs.diagnostics.equivalence(cs.data.mod_add(n=6, k=6).by_symbol(), exact=True)
    contexts = cs.diagnostics.context_distances(task.given_symbol())
    return {
        "row_distance": float(distances(best["h"])[0, 3]),
        "context_distance": float(contexts[0, 3]),
        "label_distance": float(meaning.distance[0, 3]),
        "equal": equal,
        "different": different,
        "excess": best["excess"],
        "affine_rank": best["affine_rank"],
        "fixed_equal": apart(fixed["h"], classes)[0],
        "fixed_excess": fixed["excess"],
        "basis": basis(task, classes, seed, settings.iterations),
        "split": aligned.split,
        "merged": aligned.merged,
        "kept": float(t[0, 3]),
        "broken": float(t[1, 4]),
        "distances": distances(best["h"]).tolist(),
    }


def basis(
    task: cs.data.SymbolTask, classes: np.ndarray, seed: int, iterations: int
) -> dict[str, Any]:
    """As many contexts as dimensions, a basis: rows at a minimum of both losses, from one start.

    All similarities are within reach, so that these contexts belong to a minimum of both.
    """
    p = torch.from_numpy(task.pairs())
    d = len(p)
    generator = torch.Generator().manual_seed(seed)
    start, z = (
        torch.randn(n, d, generator=generator, dtype=torch.float64) for n in (p.shape[1], d)
    )
    z = torch.linalg.qr(z)[0]
    found: dict[str, Any] = {
        "rank": int(torch.linalg.matrix_rank(z)),
        "affine_rank": int(torch.linalg.matrix_rank(z[1:] - z[0])),
    }
    for name, loss in (("contexts", expected), ("symbols", over_symbols)):
        h = start.clone().requires_grad_()
        solved([h], lambda h=h, loss=loss: loss(z @ h.T, p), iterations)
        found[name] = {
            "distance": apart(h.tolist(), classes)[0],
            "excess": float((loss(z @ h.T, p) - loss(information(p), p)).detach()),
        }
    return found


# ---- formulas ----


def lemma(settings: Settings, seed: int) -> dict[str, Any]:
    """Both forms of the last line at a minimum of the lemma's risk, in all batches of three."""
    task, _ = aligned_task(settings, seed)
    p = torch.from_numpy(task.pairs())
    ratio, of_u = information(p), p.sum(dim=0)  # log p(u|c)/p(u), p(u)
    b = torch.randn(len(p), 1, generator=torch.Generator().manual_seed(seed)).double()
    S = (ratio + b).requires_grad_()
    (slope,) = torch.autograd.grad(over_symbols(S, p), S)  # zero: convex in S, so a minimum
    S = S.detach()
    batches = torch.cartesian_prod(*[torch.arange(len(of_u))] * 3)
    total = ratio.exp()[:, batches].sum(dim=2, keepdim=True)  # sum_j p(s_j|c)/p(s_j)
    given = (p / p.sum(dim=1, keepdim=True))[:, batches]  # p(s_i|c)
    mended = S[:, batches].softmax(dim=2) * of_u[batches] * total
    quotient = (S[:, :, None] - S[:, None]).exp()
    asked = ratio[:, :1] - total[:, (batches[:, 0] == 0), 0].log()  # of S(0, c), by each batch
    return {
        "printed": {"spread": float((asked.amax(dim=1) - asked.amin(dim=1)).max())},
        "corrected": {
            "gradient": float(slope.abs().max()),
            "error": float((mended - given).abs().max()),
            "quotient": float(
                (quotient / (ratio[:, :, None] - ratio[:, None]).exp() - 1).abs().max()
            ),
        },
    }


def update(seed: int) -> dict[str, float]:
    """The rule of A.5 against autograd: of both losses, and with symbols that repeat."""
    generator = torch.Generator().manual_seed(seed)
    s, c = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)

    def rule(rows: Tensor, which: Tensor) -> Tensor:
        alpha = (rows[which] @ c.T).softmax(dim=1)
        return torch.zeros_like(rows).index_add(0, which, alpha @ c - c)

    def slope(of: Any, rows: Tensor) -> Tensor:
        free = rows.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(of(free), free)
        return gradient

    each = torch.arange(6)
    twice = torch.tensor([0, 1, 2, 0, 1, 0])
    printed = lambda rows: -((rows * c).sum(1) - (rows * c).sum(1).logsumexp(0)).sum()
    errors = {
        "printed": slope(printed, s) - rule(s, each),
        "corrected": slope(lambda rows: 6 * objective()(rows, c), s) - rule(s, each),
        "repeated": slope(lambda rows: 6 * objective()(rows[twice], c), s) - rule(s, twice),
    }
    return {name: float(error.abs().max()) for name, error in errors.items()}


def enumeration(seed: int) -> float:
    """The largest difference between the population loss and the mean over all batches."""
    rng = np.random.default_rng([seed, 3])
    p = torch.from_numpy(law(rng, 9).reshape(3, 3))
    h, z = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(seed)).double()
    errors = [enumerated(h, z, p, n) - float(expected(z @ h.T, p, n)) for n in (2, 3)]
    return max(abs(error) for error in errors)


def ray() -> dict[str, Any]:
    """The loss of CModAdd, and with noise, along the ray of one-hot classes, over its infimum."""
    losses: dict[str, Any] = {"scales": list(SCALES)}
    for name, noise in (("printed", 0.0), ("corrected", 0.1)):
        task = cs.data.contrastive_mod_add(masked="first", noise=noise)
        p = torch.from_numpy(task.pairs())
        other, c = torch.from_numpy(task.contexts[:, 1]), torch.from_numpy(task.contexts[:, 2])
        means = (c - other) % 8  # the class that the context asks for
        S = (means[:, None] == torch.arange(16) % 8).double()
        if noise:
            least = expected(information(p), p)
        else:  # both candidates fit, or one
            fits = p > 0
            joint = (p[:, None] * p.sum(dim=1)[None, :, None]) * (fits[:, None] & fits[None])
            least = joint.sum() * torch.log(torch.tensor(2.0, dtype=torch.float64))
        excess = [float(expected(t * S, p) - least) for t in SCALES]
        losses[name] = {
            "excess": excess, "best_scale": SCALES[int(np.argmin(excess))]
        }  # fmt: skip
    return losses


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Formulas, optima and the ray."""
    result: dict[str, Any] = {"ray": keep("ray", ray)}
    pieces = {
        "enumeration": enumeration,
        "update": update,
        "lemma": lambda seed: lemma(settings, seed),
        "labels": lambda seed: with_labels(settings, seed),
        "aligned": lambda seed: without_labels(settings, seed),
    }
    for name, piece in pieces.items():
        result[name] = [
            keep(f"{name} {seed}", lambda s=seed, make=piece: make(s)) for seed in settings.seeds
        ]
    return result


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Identities, theorems, errata, a typo and remarks."""

    def of(name: str, *keys: str) -> dict[str, list[float]]:
        return {key: [row[key] for row in result[name]] for key in keys}

    rows = result["aligned"]
    forms = {
        side: {name: [row[side][name] for row in result["lemma"]] for name in names}
        for side, names in (
            ("printed", ("spread",)),
            ("corrected", ("gradient", "error", "quotient")),
        )
    }
    basis_of = lambda loss: {
        name: [row["basis"][loss][name] for row in rows] for name in ("distance", "excess")
    }
    ranks = {name: [row["basis"][name] for row in rows] for name in ("rank", "affine_rank")}
    return [
        LOSS.judge(error=result["enumeration"]),
        LEMMA.judge(**forms),
        UPDATE.judge(
            printed={"error": [row["printed"] for row in result["update"]]},
            corrected={
                "error": [row["corrected"] for row in result["update"]],
                "error_repeated": [row["repeated"] for row in result["update"]],
            },
        ),
        LABELS.judge(**of("labels", "equal", "different", "equivalent_elsewhere", "excess")),
        UNLABELLED.judge(**of("aligned", "equal", "different", "excess")),
        ENCODER.judge(
            equal=[row["fixed_equal"] for row in rows],
            excess=[row["fixed_excess"] for row in rows],
        ),
        BASIS.judge(
            printed=basis_of("contexts") | ranks,
            corrected=basis_of("symbols")
            | ranks
            | {
                "distance_d_plus_1": [row["equal"] for row in rows],
                "excess_d_plus_1": [row["excess"] for row in rows],
                "affine_rank_d_plus_1": [row["affine_rank"] for row in rows],
            },
        ),
        PROPOSITION.judge(
            expected=of("aligned", "label_distance", "context_distance", "row_distance"),
            ours=of("labels", "label_distance", "context_distance"),
        ),
        DEFINITION.judge(
            expected={
                "distance": [row["broken"] for row in rows],
                "distance_of_the_pair": [row["kept"] for row in rows],
            },
            ours={
                "distance": [row["equal"] for row in rows],
                "split": [row["split"] for row in rows],
                "merged": [row["merged"] for row in rows],
            },
        ),
        MINIMISER.judge(
            expected={
                "best_scale": result["ray"]["printed"]["best_scale"],
                "excess_there": min(result["ray"]["printed"]["excess"]),
            },
            ours={
                "best_scale": result["ray"]["corrected"]["best_scale"],
                "excess_there": min(result["ray"]["corrected"]["excess"]),
            },
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Distances of rows at the optimum; the two lines of Fig. 3; the loss along a ray."""
    canvas, axes = style.canvas(2, 2, width=3.7, height=2.9)
    for axis, name, title in (
        (axes[0, 0], "aligned", r"$\|h_u - h_v\|$, six symbols mod 3"),
        (axes[0, 1], "labels", r"$\|h_u - h_v\|$, labels, four meanings"),
    ):
        picture = axis.imshow(result[name][0]["distances"], cmap="Greys", vmin=0)
        canvas.colorbar(picture, ax=axis, shrink=0.8)
        axis.grid(False)
        count = len(result[name][0]["distances"])
        axis.set_xticks(range(count))
        axis.set_yticks(range(count))
        style.label(axis, "symbol $v$", "symbol $u$", title)
    lines, loss = axes[1]
    t = np.linspace(-2, 2, 50)
    # contexts z_1 = (1, 0.4), z_2 = (0.3, 1): difference . z_c = a(u) - a(v)
    for a, dash, text in ((0.0, "-", "a(u) = a(v)"), (0.7, "--", "a(u) - a(v) = 0.7")):
        lines.plot(t, (a - 1.0 * t) / 0.4, dash, color=style.COLOURS[3], label=f"$z_1$: ${text}$")
        lines.plot(t, (a - 0.3 * t) / 1.0, dash, color=style.COLOURS[4], label=f"$z_2$: ${text}$")
    lines.set_xlim(-1.5, 1.5)
    lines.set_ylim(-1.5, 1.5)
    lines.legend(fontsize=6, loc="lower left", framealpha=0.9)
    style.label(lines, "$(h_u - h_v)_1$", "$(h_u - h_v)_2$", "Fig. 3; dashed: under eq. (2)")
    for name, text in (("printed", "CModAdd"), ("corrected", "with noise 0.1")):
        loss.plot(result["ray"]["scales"], result["ray"][name]["excess"], "o-", label=text)
    loss.set_yscale("log")
    loss.set_xscale("log")
    loss.legend(loc="lower left")
    style.label(loss, "size of the embedding", "loss over its infimum", "no minimiser")
    return canvas
