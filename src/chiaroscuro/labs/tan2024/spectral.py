"""Thm 3.1: InfoNCE is spectral clustering on the similarity graph, exactly.

Paper: tan2024, Sec. 2.4 (Def. 2.2, Lemmas 2.3-2.5), Sec. 3 (Thm 3.1) and its proof.

By enumeration of all subgraphs of out-degree one on small graphs: their rows are independent
multinomials, the cross-entropy H of eq. (3) is a sum over nodes, on the graph of views it is
SimCLR's loss, and for the Gaussian kernel, a symmetric pi and rows that sum to 1, as Sec. 3 has
them, H = (1/tau) tr(Z^T L(pi) Z) + log R(Z).

Two errata, and remarks of ours (each claim says which). Thm 3.1 has coefficient 1 where 1/tau
stands; it is right at tau = 1, and that SimCLR is spectral clustering on pi is right at every tau,
with tau log R(Z) for the regulariser. It takes L(pi) with rows of pi that sum to 1; of a graph of
zeros and ones (App. C) the operator is L(D^-1 A). Def. 2.6 calls L(W) positive semi-definite for
every nonnegative W. It is not for some asymmetric ones, and the paper applies it to directed
graphs: to sampled subgraphs, and in Thm 4.2 to pi_AB, with the caveat that L(pi_AB) "is not
necessarily the Laplacian of a symmetric graph". There the trace off the sphere needs (L(P) +
L(P^T))/2, which is semi-definite. No proof uses definiteness.

Letters: Z are the rows of z, K_Z is K. Deviations: log R keeps its constant, so that H is met
itself and not only its minimiser. Symmetric graphs are random weights scaled to rows and columns of
sum 1 (Sinkhorn).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import chiaroscuro as cs
from chiaroscuro.labs import Erratum, Keep, Remark, Stated, at_once, style

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

ROWS = Stated(
    "S1.rows",
    "rows of a random subgraph are independent multinomials with the rows of P",
    "Lemma 2.3",
    "identity",
    "error < 1e-10",
)
SAMPLED = Stated(
    "S1.sampled",
    "sampled subgraphs have these frequencies, within five standard errors",
    "Lemma 2.3, Fig. 2 (ours)",
    "law",
    "largest_z < 5",
    enough="n_samples >= 1000",
    kind="remark",
)
NODES = Stated(
    "S1.nodes",
    "the cross-entropy by enumeration of all subgraphs is the sum over nodes",
    "eq. (3), Lemmas 2.4, 2.5",
    "identity",
    "error < 1e-10",
)
INFONCE = Stated(
    "S1.infonce",
    "on the graph of two views it is 2n times InfoNCE over all but self",
    "Thm 3.1, step 1",
    "identity",
    "error < 1e-10",
)
TRACE = Erratum(
    "S1.tau",
    "Thm 3.1",
    "H = tr(Z^T L(pi) Z) + log R(Z).",
    "error < 1e-10",
    "H = (1/tau) tr(Z^T L(pi) Z) + log R(Z).",
    "error < 1e-10 and rows_off < 1e-13",
    quote="SimCLR is equivalent to solving the following program: min_Z tr(Z^T L(pi) Z) + log R(Z)",
    why="the proof takes the Gaussian kernel with variance tau, whose logarithm carries "
    "1/tau; Z lies on the unit sphere, so the factor cannot be absorbed in Z, and log R "
    "does not carry it: for tau other than 1 it is another program, with other minimisers. At tau "
    "= 1 it is right. The theorem's conclusion survives: SimCLR runs spectral clustering on pi, "
    "in the sense of Def. 2.7, with the regulariser tau log R(Z)",
)
DEGREES = Remark(
    "S1.degrees",
    "Thm 3.1 on a graph of zeros and ones (App. C)",
    "the operator is L(A).",
    "error < 1e-10",
    "it is L(D^-1 A): rows of pi sum to 1 in the theorem.",
    "error < 1e-10",
)
ASYMMETRIC = Remark(
    "S1.asymmetric",
    "Thm 4.2's setting: asymmetric P, rows of z off the sphere",
    "the attraction is (1/tau) tr(Z^T L(P) Z).",
    "error < 1e-10",
    "it is (1/tau) tr(Z^T (L(P) + L(P^T))/2 Z); on the sphere the two agree.",
    "error < 1e-10",
)
DEFINITE = Erratum(
    "S1.definite",
    "Def. 2.6: a positive semi-definite matrix",
    "x^T L(W) x >= 0 for every nonnegative W.",
    "smallest > -1e-10",
    "x^T (L(P) + L(P^T))/2 x >= 0 for every nonnegative W, P = D^-1 W.",
    "smallest > -1e-10",
    quote="The graph Laplacian operator is a function L that maps a n x n non-negative matrix to a "
    "positive semi-definite matrix",
    why="the definition asks for no symmetry. It is applied to directed subgraphs of out-degree "
    "one (below eq. (5)) and to pi_AB, of which Sec. 4 says that L(pi_AB) 'is not necessarily the "
    "Laplacian of a symmetric graph, although one can still compute the optimal embedding': the "
    "caveat is about symmetry and leaves the definition as it is. For symmetric W it is right, and "
    "so is tr(Z^T L(W) Z) >= 0 with Z on the sphere for every W. Harmless for the theorems: no "
    "proof uses definiteness",
)
CLAIMS = (ROWS, SAMPLED, NODES, INFONCE, TRACE, DEGREES, ASYMMETRIC, DEFINITE)


@dataclass(frozen=True)
class Settings:
    """Graphs small enough to enumerate.

    Args:
        seeds: a random graph and embedding each.
        n: nodes; there are (n-1)^n subgraphs.
        d: dimension of the embedding.
        taus: temperatures; the paper has 0.5 in App. C.
        n_samples: subgraphs drawn for the frequencies.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n: tuple[int, ...] = (4, 5, 6)
    d: int = 3
    taus: tuple[float, ...] = (0.1, 0.5, 2.0)
    n_samples: int = 20000


QUICK = Settings(seeds=(0, 1), n=(4, 5), n_samples=2000)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), n=(4, 5, 6, 7), n_samples=200000)


def weights(n: int, kind: str, seed: int) -> np.ndarray:
    """Random weights without a diagonal: symmetric, asymmetric, or zeros and ones.

    The symmetric ones are scaled so that rows and columns sum to 1, as Thm 3.1 has them.
    """
    rng = np.random.Generator(np.random.Philox(seed))
    w = rng.uniform(0.1, 1.0, (n, n))
    if kind == "symmetric":
        w = w + w.T
    if kind == "zeros and ones":
        ring = np.roll(np.eye(n), 1, axis=1)
        w = ((w + w.T > 1.2) | (ring + ring.T > 0)).astype(float)
        w[0, :] = w[:, 0] = 1.0  # degrees differ
    w = w * (1 - np.eye(n))
    if kind == "symmetric":
        scale = np.ones(n)
        for _ in range(1000):  # Sinkhorn's iteration, damped, keeps the symmetry
            scale = np.sqrt(scale / (w @ scale))
        w = scale[:, None] * w * scale
    return w


def points(n: int, d: int, seed: int, sphere: bool) -> Tensor:
    """Random embeddings."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, d, dtype=torch.float64, generator=generator)
    return z / z.norm(dim=1, keepdim=True) if sphere else z


def trace(L: Any, z: Tensor) -> float:
    """tr(Z^T L Z)."""
    return float(np.trace(z.numpy().T @ (L @ z.numpy())))


def rows_error(graph: cs.graphs.Graph) -> float:
    """The largest difference of a subgraph's probability from the product of its rows'."""
    p = graph.row_normalised().weights.toarray()
    node = np.arange(graph.n)
    return max(
        abs(probability - float(p[node, partners].prod()))
        for partners, probability in cs.graphs.subgraphs(graph)
    )


def frequencies(graph: cs.graphs.Graph, n_samples: int, seed: int) -> dict[str, list[float]]:
    """How often each edge is drawn, beside P."""
    p = graph.row_normalised().weights.toarray()
    counts = np.zeros_like(p)
    node = np.arange(graph.n)
    for step in range(n_samples):
        counts[node, cs.graphs.sample_subgraph(graph, seed, step)] += 1
    edges = p > 0
    return {"p": p[edges].tolist(), "share": (counts[edges] / n_samples).tolist()}


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Every identity on every graph."""
    errors: dict[str, list[float]] = {
        name: []
        for name in (
            "rows", "nodes", "infonce", "rows_off", "at_1", "tau_1", "over_tau", "A", "P", "plain",
            "half",
        )
    }  # fmt: skip
    dots: list[list[float]] = []
    smallest: dict[str, list[float]] = {"plain": [], "half": []}
    for seed in settings.seeds:
        for n in settings.n:
            for kind in ("symmetric", "asymmetric", "zeros and ones"):
                w = weights(n, kind, seed)
                graph = cs.graphs.Graph(w)
                errors["rows"].append(rows_error(graph))
                for tau in settings.taus:
                    _one(graph, settings, seed, tau, kind, errors, dots)
            w = weights(n, "asymmetric", seed) ** 6  # very unequal
            L = cs.graphs.laplacian(cs.graphs.Graph(w), "unnormalised").toarray()
            half = cs.graphs.laplacian(cs.graphs.Graph(w), "generalised").toarray()
            smallest["plain"].append(float(np.linalg.eigvalsh((L + L.T) / 2)[0]))
            smallest["half"].append(float(np.linalg.eigvalsh(half)[0]))
    frequency = [
        keep(
            f"frequencies {seed}",
            lambda seed=seed: frequencies(
                cs.graphs.Graph(weights(5, "asymmetric", seed)), settings.n_samples, seed
            ),
        )
        for seed in settings.seeds
    ]
    return {
        "errors": errors,
        "smallest": smallest,
        "dots": dots,
        "frequency": frequency,
        "n_samples": settings.n_samples,
    }


def _one(
    graph: cs.graphs.Graph,
    settings: Settings,
    seed: int,
    tau: float,
    kind: str,
    errors: dict[str, list[float]],
    dots: list[list[float]],
) -> None:
    """One graph at one temperature: the forms of H, each against the enumeration."""
    kernel = cs.Gaussian(tau=tau)
    z = points(graph.n, settings.d, seed, sphere=kind == "symmetric")
    enumerated = float(cs.graphs.cross_entropy_by_enumeration(graph, z, kernel))
    parts = cs.graphs.cross_entropy(graph, z, kernel)
    log_R = float(parts.log_R)
    errors["nodes"].append(abs(float(parts.total) - enumerated))
    if kind == "symmetric":  # the hypotheses of Thm 3.1
        form = trace(cs.graphs.laplacian(graph, "unnormalised"), z)
        errors["rows_off"].append(float(np.abs(graph.degrees - 1).max()))
        parts = cs.graphs.cross_entropy(graph, z, cs.Gaussian(tau=1.0))
        errors["at_1"].append(abs(float(parts.total) - form - float(parts.log_R)))
        errors["tau_1"].append(abs(form + log_R - enumerated))
        errors["over_tau"].append(abs(form / tau + log_R - enumerated))
        dots.append([enumerated, form / tau + log_R, form + log_R])
    elif kind == "asymmetric":
        plain = trace(cs.graphs.laplacian(graph, "random walk"), z)
        half = trace(cs.graphs.laplacian(graph, "generalised"), z)
        errors["plain"].append(abs(plain / tau + log_R - enumerated))
        errors["half"].append(abs(half / tau + log_R - enumerated))
    else:
        whole = trace(cs.graphs.laplacian(graph, "unnormalised"), z)
        half = trace(cs.graphs.laplacian(graph, "generalised"), z)
        errors["A"].append(abs(whole / tau + log_R - enumerated))
        errors["P"].append(abs(half / tau + log_R - enumerated))
    n = graph.n
    views = points(2 * n, settings.d, seed + 1, sphere=True)
    total = float(cs.graphs.cross_entropy(cs.graphs.from_views(n), views, kernel).total)
    simclr = 2 * n * float(cs.InfoNCE(cs.Cosine(tau=tau))(views[:n], views[n:]))
    errors["infonce"].append(abs(total - simclr))


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Identities, and four statements that need mending."""
    error = {name: max(values) for name, values in result["errors"].items()}
    least = {name: min(values) for name, values in result["errors"].items()}
    n = result["n_samples"]
    z_scores = [
        abs(share - p) / max((p * (1 - p) / n) ** 0.5, 1e-12)
        for row in result["frequency"]
        for p, share in zip(row["p"], row["share"], strict=True)
    ]

    def both(wrong: str, right: str) -> tuple[dict[str, float], dict[str, float]]:
        return {"error": error[wrong], "least_error": least[wrong]}, {"error": error[right]}

    return [
        ROWS.judge(error=error["rows"]),
        SAMPLED.judge(largest_z=max(z_scores), n_samples=n),
        NODES.judge(error=error["nodes"]),
        INFONCE.judge(error=error["infonce"]),
        TRACE.judge(
            printed=both("tau_1", "over_tau")[0] | {"error_at_tau_1": error["at_1"]},
            corrected=both("tau_1", "over_tau")[1] | {"rows_off": error["rows_off"]},
        ),
        DEGREES.judge(*both("A", "P")),
        ASYMMETRIC.judge(*both("plain", "half")),
        DEFINITE.judge(
            printed={"smallest": result["smallest"]["plain"]},
            corrected={"smallest": result["smallest"]["half"]},
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """The identity, the frequencies of edges, and the errors of the printed forms."""
    canvas, axes = style.canvas(1, 3)
    identity, law, bars = axes[0]
    x, mended, printed = zip(*result["dots"], strict=True)
    ends = [min(x), max(x)]
    identity.plot(ends, ends, color=style.GREY, linewidth=0.8)
    identity.scatter(
        x, printed, s=14, marker="x", color=style.COLOURS[1], label=r"$\mathrm{tr} + \log R$"
    )
    identity.scatter(x, mended, s=14, color=style.COLOURS[0], label=r"$\mathrm{tr}/\tau + \log R$")
    identity.legend()
    style.label(identity, "$H$ by enumeration", "spectral form", r"Thm 3.1 needs $1/\tau$")
    for row in result["frequency"]:
        law.scatter(row["p"], row["share"], s=9, color=style.COLOURS[0], alpha=0.7)
    law.axline((0, 0), slope=1, color=style.GREY, linewidth=0.8)
    style.label(law, "$P_{ij}$", "share of sampled subgraphs", "Lemma 2.3: rows of $P$")
    names = {
        "$1$\n" + r"$1/\tau$": ("tau_1", "over_tau"),
        "$L(A)$\n$L(D^{-1}A)$": ("A", "P"),
        "$L(P)$\n$(L(P) + L(P^T))/2$": ("plain", "half"),
    }
    for i, pair in enumerate(names.values()):
        for j, name in enumerate(pair):
            values = [max(v, 1e-17) for v in result["errors"][name]]
            place = [i + 0.24 * j - 0.12] * len(values)
            text = ("upper form", "lower form")[j] if i == 0 else None
            bars.scatter(place, values, s=10, color=style.COLOURS[1 - j], label=text, alpha=0.6)
    bars.axhline(1e-10, color=style.GREY, linestyle="--", linewidth=0.8)
    bars.set_yscale("log")
    bars.set_ylim(1e-17, 1e6)
    bars.set_xlim(-0.5, 2.5)
    bars.set_xticks(range(3), list(names))
    bars.legend(ncols=2, loc="upper center")
    style.label(bars, "factor, graph, Laplacian", "error of $H$", "two forms of each")
    return canvas
