"""Every measure by name: what `diagnose`, `evaluate`, the report and the docs draw from.

To add one: write its function in a file of this folder, and one `Measure` here. If it has `of`, it
is computed for h and z by `diagnose`, shown by the report, listed in the docs, and held to the laws
of `tests/measures`.
"""

from __future__ import annotations

import math

import numpy as np

from chiaroscuro.measures.accuracy import voted
from chiaroscuro.measures.comparison import alpha_req, lidar, rankme
from chiaroscuro.measures.measure import Measure, Space
from chiaroscuro.measures.sphere import alignment, mean_cosine, uniformity

__all__ = ["CATALOGUE", "measure_of"]


def _skewness(space: Space) -> float:
    counts = np.bincount(space.near.ids[:, :10].ravel(), minlength=len(space.some))
    spread = counts.std()
    return float((((counts - counts.mean()) / spread) ** 3).mean()) if spread > 0 else 0.0


def _knn(space: Space) -> float | None:
    if space.labels is None:
        return None
    y = space.labels[space.some]
    known = y >= 0
    return float((voted(space.near, y) == y)[known].mean()) if known.any() else None


def _pair_rank(space: Space) -> float | None:
    from chiaroscuro.measures.pairs import pair_rank

    return None if space.views is None else pair_rank(*space.views)


_PAIRS = "all pairs of at most 10,000 rows"
_KNN = "leave one out, or the split if there is one; cosine, 20 neighbours, majority vote"

_MEASURES = (
    Measure(
        "effective_rank",
        "effective rank",
        "dimensions",
        low=0,
        better="higher",
        protocol="centred rows",
        formula="exp(-sum_k p_k log p_k), p_k = s_k / sum_j s_j",
        of=lambda space: space.spectrum.effective_rank,
        collapsed=0,
        ideal=6,
        cite="roy2007rank",
    ),
    Measure(
        "participation_ratio",
        "participation ratio",
        "dimensions",
        low=0,
        better="higher",
        protocol="centred rows",
        formula="(sum_k s_k^2)^2 / sum_k s_k^4",
        of=lambda space: space.spectrum.participation_ratio,
        collapsed=0,
        ideal=6,
    ),
    Measure(
        "numerical_rank",
        "numerical rank",
        "dimensions",
        low=0,
        better="higher",
        protocol="centred rows",
        formula="#{k : s_k > 1e-3 s_1}",
        of=lambda space: space.spectrum.numerical_rank,
        collapsed=0,
        ideal=6,
    ),
    Measure(
        "rankme",
        "RankMe",
        "dimensions",
        low=0,
        better="higher",
        protocol="rows not centred",
        formula="exp(-sum_k p_k log p_k), p_k = s_k / sum_j s_j + 1e-7",
        of=lambda space: rankme(space.spectrum.raw),
        collapsed=1,
        ideal=6,
        cite="garrido2023rankme",
    ),
    Measure(
        "alpha_req",
        "alpha-ReQ",
        low=0,
        protocol="all ranks above 1e-3 of the largest; about 1 generalises best",
        formula="slope of -log s_k^2 on log k",
        of=lambda space: alpha_req(space.spectrum.values),
        ideal=0,
        cite="agrawal2022alpha",
    ),
    Measure(
        "mean_cosine",
        "mean cosine",
        low=-1,
        high=1,
        better="lower",
        protocol="distinct pairs of all rows",
        formula="mean_{i != j} u_i . u_j",
        of=lambda space: mean_cosine(space.x),
        collapsed=1,
        ideal=-1 / 11,
    ),
    Measure(
        "uniformity",
        "uniformity",
        "nats",
        low=-8,
        high=0,
        better="lower",
        protocol=_PAIRS,
        formula="log mean_{i != j} exp(-2 |u_i - u_j|^2)",
        of=lambda space: uniformity(space.few, rows=None),
        collapsed=0,
        ideal=math.log((10 * math.exp(-4) + math.exp(-8)) / 11),
        cite="wang2020alignuniform",
    ),
    Measure(
        "norm_mean",
        "norm, mean",
        low=0,
        protocol="all rows",
        formula="mean_i |h_i|",
        of=lambda space: float(space.norms.mean()),
        ideal=1,
    ),
    Measure(
        "norm_variation",
        "norm, deviation / mean",
        low=0,
        protocol="all rows",
        formula="sd_i |h_i| / mean_i |h_i|",
        of=lambda space: float(space.norms.std() / space.norms.mean()) if space.norms.any() else 0,
        collapsed=0,
        ideal=0,
    ),
    Measure(
        "hub_skewness",
        "hubness, skewness",
        better="lower",
        protocol="10 nearest others by cosine, at most 10,000 rows",
        formula="skewness of N_j = #{i : j among the 10 nearest of i}",
        of=_skewness,
        cite="radovanovic2010hubs",
    ),
    Measure(
        "alignment",
        "alignment",
        "squared distance",
        low=0,
        high=4,
        better="lower",
        protocol="positive pairs, at most 2,048",
        formula="mean_i |u1_i - u2_i|^2",
        of=lambda space: None if space.views is None else alignment(*space.views),
        needs="views",
        collapsed=0,
        ideal=0,
        cite="wang2020alignuniform",
    ),
    Measure(
        "pair_rank",
        "positives nearer than negatives",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="positive pairs among at most 2,048 others, cosine, both ways; ties count half",
        formula="mean_i mean_{j != i} [cos(h1_i, h2_i) > cos(h1_i, h2_j)]",
        of=_pair_rank,
        needs="views",
        collapsed=0.5,
        ideal=1,
    ),
    Measure(
        "lidar",
        "LiDAR",
        "dimensions",
        low=0,
        better="higher",
        protocol="each sample a class of two views, at most 2,048; ridge 1e-4",
        formula="exp(entropy of the eigenvalues of Sw^(-1/2) Sb Sw^(-1/2))",
        of=lambda space: None if space.views is None else lidar(*space.views),
        needs="views",
        collapsed=0,
        cite="thilak2024lidar",
    ),
    Measure(
        "knn_accuracy",
        "accuracy, 20 neighbours",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol=_KNN,
        formula="share of rows whose neighbours predict their label",
        of=_knn,
        needs="labels",
        cite="wu2018instance",
    ),
    # ---- with a procedure of their own ----
    Measure(
        "linear_accuracy",
        "accuracy, linear",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="ridge classifier, penalty 1, standardised; five folds, or the split",
        formula="share of held-out rows with label argmax_c x'W_c",
        needs="labels",
    ),
    Measure(
        "recall_1",
        "positives ranked first",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="first view among the second views of at most 512 samples, cosine",
        formula="P(the nearest of the other views is the positive)",
        needs="views",
    ),
    Measure(
        "knn_20",
        "held-out accuracy, 20 neighbours",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="fitted on split 0, tested on split 1; cosine, weighted by exp(s / 0.07)",
        formula="share of test rows whose neighbours predict their label",
        needs="labels",
        cite="wu2018instance",
    ),
    Measure(
        "knn_200",
        "held-out accuracy, 200 neighbours",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="fitted on split 0, tested on split 1; cosine, weighted by exp(s / 0.07)",
        formula="share of test rows whose neighbours predict their label",
        needs="labels",
        cite="wu2018instance",
    ),
    Measure(
        "linear",
        "held-out accuracy, linear",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="ridge, penalty 1, standardised; fitted on split 0, tested on split 1",
        formula="share of test rows with label argmax_c x'W_c",
        needs="labels",
    ),
    Measure(
        "online_knn",
        "accuracy on training rows, 20 neighbours",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="a few rows of the training side against others of it; cosine, majority vote",
        formula="share of rows whose neighbours predict their label",
        needs="labels",
    ),
    Measure(
        "shown_knn_accuracy",
        "accuracy among the samples shown, 20 neighbours",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="leave one out among at most 2,000 of the samples on the page; cosine, majority",
        formula="share of rows whose neighbours predict their label",
        needs="labels",
    ),
    Measure("loss", "loss", "nats"),
    Measure("mean_loss", "mean loss", "nats"),
    Measure("norm_stretch", "norm, longest / median", low=1),
    Measure("dead_dimensions", "dead dimensions", low=0, better="lower"),
    Measure("near_duplicates", "rows with a duplicate", "%", low=0, high=1, better="lower"),
    Measure("outlier_rows", "outliers", "rows", low=0, better="lower"),
    Measure("label_error_rows", "likely label errors", "rows", low=0, better="lower"),
    Measure("label_error_share", "likely label errors, share", "%", low=0, high=1, better="lower"),
    Measure(
        "recall_int8",
        "recall of 10 neighbours, 8 bits",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="250 rows among 2,000; each dimension in 255 even steps",
        formula="share of the exact ten nearest that are found",
        cite="jegou2011pq",
    ),
    Measure(
        "recall_binary",
        "recall of 10 neighbours, 1 bit",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="250 rows among 2,000; sign of each dimension about its mean, Hamming distance",
        formula="share of the exact ten nearest that are found",
    ),
    Measure(
        "recall_rescored",
        "recall of 10 neighbours, 1 bit and rescoring",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="250 rows among 2,000; the forty nearest by 1 bit, re-ranked with full precision",
        formula="share of the exact ten nearest that are found",
    ),
    Measure(
        "recall_index",
        "recall of 10 neighbours, index of cells",
        "%",
        low=0,
        high=1,
        better="higher",
        protocol="250 rows among 2,000; 64 cells by k-means, the 8 nearest searched (IVF64)",
        formula="share of the exact ten nearest that are found",
        cite="jegou2011pq",
    ),
    Measure(
        "dimensions_enough",
        "dimensions needed",
        "dimensions",
        low=1,
        better="lower",
        protocol="the fewest, of the first, of largest variance or principal ones, that lose at "
        "most 1 point of accuracy (of recall without labels)",
        formula="least k in 1, 2, 4, ... with score(k) >= score(d) - 0.01",
        cite="kusupati2022",
    ),
    Measure("dimensions_enough_first", "leading dimensions needed", "dimensions", low=1),
    Measure("paired_neighbours", "neighbours shared with the partner", "%", low=0, high=1),
    Measure("paired_agreement", "agreement of the two sides (CKA)", low=0, high=1),
    Measure("all_rows", "rows in the file", "rows", low=0),
    Measure("all_exact_duplicates", "rows that equal another, all rows", "rows", low=0),
    Measure("all_zero_rows", "rows of zeros, all rows", "rows", low=0),
    Measure("all_norm_mean", "norm, mean of all rows", low=0),
    Measure("all_norm_median", "norm, median of all rows", low=0),
    Measure("all_norm_largest", "norm, longest of all rows", low=0),
    Measure("all_norm_far", "rows longer than 10 medians, all rows", "rows", low=0),
    Measure(
        "all_effective_rank",
        "effective rank, all rows",
        "dimensions",
        low=0,
        better="higher",
        protocol="covariance of all rows in one pass; s_k above 1e-4 of the largest",
        formula="exp(-sum_k p_k log p_k), p_k = s_k / sum_j s_j",
    ),
    Measure("bound", "upper bound of the loss", "nats"),
    Measure("effective_negatives", "effective negatives", low=0),
    Measure("false_mass", "repulsion on own class", "%", low=0, high=1, better="lower"),
    Measure("cluster_agreement_labels", "clusters against labels (ARI)", low=-0.5, high=1),
    Measure("projector_rank", "rank of a linear projector", "dimensions", low=0),
    Measure("projector_effective_rank", "effective rank of a linear projector", "dimensions"),
    Measure("views_annihilated", "views the projector drops", "%", low=0, high=1),
    Measure("data_annihilated", "data the projector drops", "%", low=0, high=1),
    Measure("displacement_unexplained", "tangents the projector does not fit", "%"),
    Measure("hardest_agreement", "hardest negative, own class", "%", low=0, high=1),
    Measure("span_dimension", "directions of the views", "dimensions", low=0),
    Measure("untrained_agreement", "agreement with the untrained network (CKA)", low=0, high=1),
    Measure(
        "projector_overlap",
        "projector, cosine with its start",
        low=-1,
        high=1,
        protocol="trained weights but biases and norms, of a projector of one matrix",
        formula="<W, W_0> / (|W| |W_0|)",
    ),
    Measure("projector_start_rank", "effective rank of the projector's start", "dimensions"),
    Measure(
        "start_overlap",
        "h, cosine with its start",
        low=-1,
        high=1,
        protocol="rows of a table that training moved (all if none); else h, centred, of a "
        "network without batch norm",
        formula="<h, h_0> / (|h| |h_0|)",
    ),
    Measure(
        "encoder_overlap",
        "encoder, cosine with its start",
        low=-1,
        high=1,
        protocol="trained weights but biases and norms; near 1 in healthy networks too",
        formula="<w, w_0> / (|w| |w_0|)",
    ),
    Measure(
        "encoder_turned",
        "encoder, 1 - cosine with its start",
        low=0,
        high=2,
        protocol="all trained parameters, biases included; below 1e-9 none has moved",
        formula="1 - <w, w_0> / (|w| |w_0|)",
    ),
    Measure("decay_exponent", "lr wd steps: decay leaves exp(-x) of unmoved weights", low=0),
    Measure("lr", "learning rate"),
    Measure("images_per_second", "speed", "samples/s"),
    Measure("seconds", "time", "s"),
)

CATALOGUE: dict[str, Measure] = {one.name: one for one in _MEASURES}
"""Every measure by name."""


def measure_of(name: str) -> Measure | None:
    """Return the measure that a key of a diagnosis means; `z_` stands for the projector's output.

    Example:
        >>> measure_of("z_effective_rank").label
        'effective rank'
    """
    return CATALOGUE.get(name) or CATALOGUE.get(name.removeprefix("z_"))
