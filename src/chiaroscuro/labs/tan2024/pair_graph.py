"""Thm 4.2: CLIP is generalised spectral clustering on the pair graph.

Paper: tan2024, Sec. 4, Def. 4.1, Thm 4.2 and the discussion after it.

On toys small enough to enumerate: for pairs one to one the cross-entropy is 2n times CLIP's loss;
for pictures that share texts it is (1/tau) tr(Z^T L Z) + log R with L = (L(P) + L(P^T))/2 of the
pair graph. The paper draws objects, CLIP draws pairs: that weighs each object's loss by its
degree. The two agree exactly where all degrees are equal and part as degrees spread.

Remark (ours): Thm 4.2 takes L(pi_AB) itself, which is asymmetric; off the sphere that is another
number. And on a larger graph with planted clusters CLIP, in the plane as in App. C, is compared
with generalised spectral clustering by the adjusted Rand index; and once more on a graph with so
many pairs between clusters that spectral clustering errs itself, since where both find what was
planted they agree for that alone. There CLIP has as many dimensions as spectral clustering, one a
cluster.

Results. The identities hold. Where clusters are plain CLIP finds them in the plane (0.97, as
spectral clustering does). With 60 % of the possible pairs inside clusters and 35 % of those between
them it does not: its clusters have an ARI of 0.19 with those of spectral clustering and 0.18 with
the planted ones, of which spectral clustering finds 0.69; in the plane 0.11 and 0.11. What Thm 4.2
makes equal is the objective, with log R added; 4,000 steps of descent on it are not an
eigendecomposition.

Deviations: the part on real pictures and texts (rewrites against none) is the lab `rewrites`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score  # type: ignore[import-untyped]

import chiaroscuro as cs
from chiaroscuro.labs import Keep, Remark, Stated, at_once, style
from chiaroscuro.labs.tan2024.planted import rand_index
from chiaroscuro.labs.tan2024.spectral import points, trace

__all__ = ["CLAIMS", "LAPTOP", "PAPER", "QUICK", "Settings", "claims", "figure", "run"]

CLIP = Stated(
    "S3.clip",
    "on pairs one to one the cross-entropy is 2n times InfoNCE over the other view",
    "Thm 4.2, proof",
    "identity",
    "error < 1e-10",
)
TRACE = Remark(
    "S3.trace",
    "Thm 4.2: L(pi_AB), for embeddings off the sphere",
    "H = (1/tau) tr(Z^T L(pi_AB) Z) + log R(Z).",
    "error < 1e-10",
    "H = (1/tau) tr(Z^T (L(P) + L(P^T))/2 Z) + log R(Z), P = pi_AB.",
    "error < 1e-10",
)
ENUMERATED = Stated(
    "S3.enumerated",
    "the cross-entropy over all bipartite subgraphs is the sum over nodes",
    "Thm 4.2, Lemmas 2.3-2.5",
    "identity",
    "error < 1e-10",
)
SAMPLING = Stated(
    "S3.sampling",
    "drawing pairs instead of objects changes nothing where degrees are equal, and more the more "
    "they spread",
    "Sec. 4: the difference becomes negligible as the variance of degrees is small",
    "negligible for small variance",
    "gap_equal < 1e-12 and gap_spread > 1e-2 and rank_correlation > 0.8",
    kind="empirical",
)
MONTE = Stated(
    "S3.drawn",
    "batches drawn by nodes and by edges visit objects uniformly and by degree, within five "
    "standard errors",
    "Sec. 4: the two sampling schemes (ours)",
    "law",
    "largest_z < 5",
    enough="n_batches >= 1000",
    kind="remark",
)
PLANTED = Stated(
    "S3.planted",
    "on a pair graph with planted clusters CLIP finds what generalised spectral clustering finds",
    "Thm 4.2: CLIP is equivalent to running the generalised spectral clustering",
    "equivalent",
    "mean(against_spectral) > 0.8 and mean(against_planted) > 0.8",
    enough="n_seeds >= 5 and steps >= 3000",
)
NOISY = Stated(
    "S3.noisy",
    "where spectral clustering errs, CLIP errs with it: its clusters agree more with those of "
    "generalised spectral clustering than with the planted ones",
    "Thm 4.2 (ours)",
    "not tried",
    "mean(against_spectral) > mean(against_planted)",
    enough="n_seeds >= 5 and steps >= 3000",
)
CLAIMS = (CLIP, ENUMERATED, TRACE, SAMPLING, MONTE, PLANTED, NOISY)


@dataclass(frozen=True)
class Settings:
    """Pair graphs.

    Args:
        seeds: random pairs and embeddings each.
        n: pictures of the toy that is enumerated; texts are fewer.
        taus: temperatures.
        d: dimension.
        n_wide: pictures of the graphs whose degrees spread.
        n_batches: draws of the sampling law.
        sizes, p, q: objects of a cluster on each side, and shares of pairs inside and between.
        q_noisy: shares between at which spectral clustering itself errs (an ARI of about 0.7,
            chosen on other seeds, without CLIP).
        steps, batch, lr, tau: of CLIP in the plane, as App. C has them for one kind of object.
    """

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n: tuple[int, ...] = (3, 4, 5)
    taus: tuple[float, ...] = (0.1, 0.5)
    d: int = 3
    n_wide: int = 60
    n_batches: int = 20000
    sizes: tuple[int, ...] = (40,) * 5
    p: float = 0.6
    q: float = 0.1
    q_noisy: float = 0.35
    steps: int = 4000
    batch: int = 50
    lr: float = 1.0
    tau: float = 0.5


QUICK = Settings(seeds=(0, 1), n=(3, 4), n_batches=2000, sizes=(15,) * 3, steps=60)
LAPTOP = Settings()
PAPER = Settings(seeds=tuple(range(10)), n_wide=1000, n_batches=100000)

SPREADS = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8)


def toy(n: int, seed: int) -> cs.graphs.Graph:
    """n pictures over n-1 texts, every text in use, some shared."""
    rng = np.random.Generator(np.random.Philox(seed))
    texts = np.concatenate([np.arange(n - 1), rng.integers(0, n - 1, 2)])
    pictures = np.concatenate([np.arange(n), rng.integers(0, n, 1)])
    return cs.graphs.from_pairs(pictures, texts)


def uneven(n: int, share: float, seed: int) -> cs.graphs.Graph:
    """Pairs one to one, of which a share has its text replaced by one of a few popular texts."""
    rng = np.random.Generator(np.random.Philox(seed))
    texts = np.arange(n)
    moved = rng.permutation(n)[: round(share * n)]
    pairs = [(i, i) for i in range(n)] + [(i, i % max(1, n // 20)) for i in moved]
    pictures, captions = np.array(pairs).T
    return cs.graphs.from_pairs(pictures, texts[captions])


def sampling_gap(graph: cs.graphs.Graph, d: int, tau: float, seed: int) -> tuple[float, float]:
    """Spread of degrees, and the relative difference of the two expected losses."""
    z = points(graph.n, d, seed, sphere=True)
    per_node = cs.graphs.cross_entropy(graph, z, cs.Gaussian(tau=tau)).per_node.numpy()
    degrees = graph.degrees
    by_nodes = float(per_node.mean())
    by_edges = float((degrees * per_node).sum() / degrees.sum())
    return float(degrees.std() / degrees.mean()), abs(by_edges - by_nodes) / abs(by_nodes)


def drawn(settings: Settings, seed: int) -> list[float]:
    """Deviations, in standard errors, of how often pictures are drawn by nodes and by edges.

    By edges a picture comes with its share of pairs. By nodes it comes as an anchor or as the
    partner of one of its texts: half of (1 + sum_j P_ji) over the number of objects, in pairs.
    """
    graph = toy(5, seed)
    p = graph.row_normalised().weights.toarray()
    split = graph.split or 0
    expected = {
        "nodes": (1 + p[split:, :split].sum(axis=0)) / graph.n,
        "edges": graph.degrees[:split] / graph.degrees[:split].sum(),
    }
    scores = []
    for by, law in expected.items():
        pairs = cs.graphs.Pairs(graph, batch=1, seed=seed, by=by)
        counts = np.zeros(split)
        for step in range(settings.n_batches):
            counts[pairs.at(step).anchors] += 1
        error = np.sqrt(law * (1 - law) / settings.n_batches)
        scores += (np.abs(counts / settings.n_batches - law) / error).tolist()
    return scores


def planted_pairs(settings: Settings, seed: int) -> tuple[cs.graphs.Graph, np.ndarray]:
    """Images and texts in clusters, paired inside them often and between them seldom."""
    rng = np.random.Generator(np.random.Philox(seed))
    truth = np.repeat(np.arange(len(settings.sizes)), settings.sizes)
    share = np.where(truth[:, None] == truth, settings.p, settings.q)
    images, texts = np.nonzero(rng.random(share.shape) < share)
    n = len(truth)
    return cs.graphs.from_pairs(images, texts, n, n), np.concatenate([truth, truth])


def clustered(settings: Settings, seed: int, d: int = 2) -> dict[str, Any]:
    """CLIP on free points, by pairs; its clusters against the graph's own."""
    graph, truth = planted_pairs(settings, seed)
    k = len(settings.sizes)
    pairs = cs.graphs.Pairs(graph, settings.batch, seed=seed, by="edges")
    objective = cs.InfoNCE(cs.Gaussian(tau=settings.tau), cs.OtherView())
    z = torch.randn(graph.n, d, generator=torch.Generator().manual_seed(seed))
    start = rand_index(z, truth, k)
    for step in range(settings.steps):
        images, texts = (torch.from_numpy(x) for x in pairs.at(step))
        both = torch.cat([z[images], z[texts]]).requires_grad_()
        loss = objective(both[: len(images)], both[len(images) :])
        (slope,) = torch.autograd.grad(loss, both)
        z = z.index_add(0, torch.cat([images, texts]), slope, alpha=-settings.lr)
    spectral = cs.graphs.spectral_clustering(graph, k, seed=seed)
    return {
        "against_planted": rand_index(z, truth, k),
        "against_spectral": rand_index(z, spectral, k),
        "spectral_against_planted": float(adjusted_rand_score(truth, spectral)),
        "at_start": start,
        "z": [[round(x, 2) for x in row] for row in z.tolist()]
        if seed == settings.seeds[0] and d == 2
        else [],
        "truth": truth.tolist() if seed == settings.seeds[0] and d == 2 else [],
    }


def run(settings: Settings, keep: Keep = at_once) -> dict[str, Any]:
    """Identities on toys, gaps on uneven graphs, and drawn batches."""
    errors: dict[str, list[float]] = {name: [] for name in ("clip", "nodes", "plain", "half")}
    for seed in settings.seeds:
        for n in settings.n:
            graph = toy(n, seed)
            z = points(graph.n, settings.d, seed, sphere=False)
            one = points(2 * n, settings.d, seed, sphere=True)
            for tau in settings.taus:
                kernel = cs.Gaussian(tau=tau)
                pairs = cs.graphs.from_pairs(np.arange(n), np.arange(n))
                total = float(cs.graphs.cross_entropy(pairs, one, kernel).total)
                clip = cs.InfoNCE(cs.Cosine(tau=tau), cs.OtherView())(one[:n], one[n:])
                errors["clip"].append(abs(total - 2 * n * float(clip)))
                H = float(cs.graphs.cross_entropy_by_enumeration(graph, z, kernel))
                parts = cs.graphs.cross_entropy(graph, z, kernel)
                errors["nodes"].append(abs(float(parts.total) - H))
                for name, kind in (("plain", "random walk"), ("half", "generalised")):
                    form = trace(cs.graphs.laplacian(graph, kind), z) / tau + float(parts.log_R)
                    errors[name].append(abs(form - H))
    gaps = [
        [
            sampling_gap(uneven(settings.n_wide, share, seed), settings.d, 0.1, seed)
            for share in SPREADS
        ]
        for seed in settings.seeds
    ]
    scores = [keep(f"drawn {seed}", lambda s=seed: drawn(settings, s)) for seed in settings.seeds]
    return {
        "errors": errors,
        "gaps": gaps,
        "scores": scores,
        "n_batches": settings.n_batches,
        "planted": [
            keep(f"planted {seed}", lambda s=seed: clustered(settings, s))
            for seed in settings.seeds
        ],
        "noisy": [
            keep(
                f"noisy {seed}",
                lambda s=seed: clustered(
                    replace(settings, q=settings.q_noisy), s, len(settings.sizes)
                ),
            )
            for seed in settings.seeds
        ],
        "steps": settings.steps,
    }


def claims(result: dict[str, Any]) -> list[cs.labs.Claim]:
    """Three identities, one of them mended, and the two ways of drawing."""
    error = {name: max(values) for name, values in result["errors"].items()}
    mean = np.array(result["gaps"]).mean(axis=0)
    order = [np.argsort(np.argsort(mean[:, column])) for column in (0, 1)]
    return [
        CLIP.judge(error=error["clip"]),
        ENUMERATED.judge(error=error["nodes"]),
        TRACE.judge(expected={"error": error["plain"]}, ours={"error": error["half"]}),
        SAMPLING.judge(
            gap_equal=[row[0][1] for row in result["gaps"]],
            gap_spread=float(mean[:, 1].max()),
            rank_correlation=float(np.corrcoef(order[0], order[1])[0, 1]),
        ),
        MONTE.judge(
            largest_z=max(max(row) for row in result["scores"]), n_batches=result["n_batches"]
        ),
        *(
            stated.judge(
                **{
                    name: [row[name] for row in result[graph]]
                    for name in (
                        "against_spectral",
                        "against_planted",
                        "spectral_against_planted",
                        "at_start",
                    )
                },
                n_seeds=len(result[graph]),
                steps=result["steps"],
            )
            for stated, graph in ((PLANTED, "planted"), (NOISY, "noisy"))
        ),
    ]


@style.drawn
def figure(result: dict[str, Any]) -> Any:
    """Errors of the forms of H, and the gap between the two ways of drawing."""
    canvas, axes = style.canvas(1, 3, width=3.4)
    forms, gap, plane = axes[0]
    names = {
        "clip": "CLIP\none to one",
        "nodes": "sum\nover nodes",
        "half": "half-sum\nof $L$",
        "plain": "$L(\\pi_{AB})$,\noff the sphere",
    }
    for i, name in enumerate(names):
        values = [max(v, 1e-17) for v in result["errors"][name]]
        colour = style.COLOURS[1 if name == "plain" else 0]
        forms.scatter([i] * len(values), values, s=12, color=colour, alpha=0.7)
    forms.axhline(1e-10, color=style.GREY, linestyle="--", linewidth=0.8)
    forms.set_yscale("log")
    forms.set_xlim(-0.5, 3.5)
    forms.set_xticks(range(4), list(names.values()))
    style.label(forms, "form", "error of $H$", "the identity on toys")
    for row in result["gaps"]:
        spread, size = zip(*row, strict=True)
        gap.plot(spread, size, color=style.GREY, alpha=0.5, linewidth=0.8)
    spread, size = np.array(result["gaps"]).mean(axis=0).T.tolist()
    gap.plot(spread, size, "o-", label="mean over seeds")
    gap.legend()
    style.label(
        gap, "spread of degrees (std / mean)", "relative gap", "pairs drawn instead of objects"
    )
    first = result["planted"][0]
    z, truth = np.array(first["z"]), np.array(first["truth"])
    half = len(z) // 2
    for side, marker, text in ((slice(0, half), "o", "images"), (slice(half, None), "^", "texts")):
        colours = [style.COLOURS[c % 7] for c in truth[side]]
        plane.scatter(*z[side].T, s=9, c=colours, marker=marker, linewidths=0, alpha=0.8)
        plane.scatter([], [], color=style.GREY, marker=marker, s=9, label=text)
    canvas.legend(*plane.get_legend_handles_labels(), loc="outside lower right", ncols=2)
    ari = first["against_spectral"]
    style.label(plane, "$z_1$", "$z_2$", f"planted pairs, ARI with spectral {ari:.2f}")
    return canvas
