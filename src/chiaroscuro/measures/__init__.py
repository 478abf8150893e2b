"""Measures of embeddings in numpy, each defined once, for diagnosis, evaluation and report."""

from chiaroscuro.measures.accuracy import (
    Labelled,
    knn_accuracies,
    knn_accuracy,
    knn_leave_one_out,
    voted,
)
from chiaroscuro.measures.agreement import adjusted_rand, linear_agreement, mutual_information
from chiaroscuro.measures.catalogue import CATALOGUE, measure_of
from chiaroscuro.measures.comparison import alpha_req, lidar, rankme
from chiaroscuro.measures.controls import Control, Interval, interval, shuffled
from chiaroscuro.measures.dimensions import Dimensions, dimensions
from chiaroscuro.measures.drift import Drift, TwoSample, drift, two_sample
from chiaroscuro.measures.duplicates import Duplicates, near_duplicates
from chiaroscuro.measures.economy import Economy, economy
from chiaroscuro.measures.hubness import Closest, Hubness, closest, hubness
from chiaroscuro.measures.kmeans import Clusters, kmeans
from chiaroscuro.measures.listed import LISTED, Listed
from chiaroscuro.measures.measure import Measure, Space
from chiaroscuro.measures.names import accuracy_name
from chiaroscuro.measures.neighbours import METRICS, Neighbours, nearest
from chiaroscuro.measures.pairs import pair_rank, pair_ranks
from chiaroscuro.measures.record import Record, plain
from chiaroscuro.measures.regression import explained
from chiaroscuro.measures.rows import as_array, labels_of, pairs_of, rows_of, some_of, spaced, unit
from chiaroscuro.measures.scan import Pass, Scan, scan
from chiaroscuro.measures.spectrum import (
    Decay,
    Spectrum,
    absolute_rank,
    decay,
    effective_rank,
    numerical_rank,
    participation_ratio,
    singular_values,
    spectrum,
)
from chiaroscuro.measures.sphere import (
    Norms,
    alignment,
    mean_cosine,
    norms,
    uniform_law,
    uniformity,
)
from chiaroscuro.measures.suspects import label_errors, outliers, split_duplicates
from chiaroscuro.measures.versus import Versus, versus

__all__ = [
    "CATALOGUE",
    "LISTED",
    "METRICS",
    "Closest",
    "Clusters",
    "Control",
    "Decay",
    "Dimensions",
    "Drift",
    "Duplicates",
    "Economy",
    "Hubness",
    "Interval",
    "Labelled",
    "Listed",
    "Measure",
    "Neighbours",
    "Norms",
    "Pass",
    "Record",
    "Scan",
    "Space",
    "Spectrum",
    "TwoSample",
    "Versus",
    "absolute_rank",
    "accuracy_name",
    "adjusted_rand",
    "alignment",
    "alpha_req",
    "as_array",
    "closest",
    "decay",
    "dimensions",
    "drift",
    "economy",
    "effective_rank",
    "explained",
    "hubness",
    "interval",
    "kmeans",
    "knn_accuracies",
    "knn_accuracy",
    "knn_leave_one_out",
    "label_errors",
    "labels_of",
    "lidar",
    "linear_agreement",
    "mean_cosine",
    "measure_of",
    "mutual_information",
    "near_duplicates",
    "nearest",
    "norms",
    "numerical_rank",
    "outliers",
    "pair_rank",
    "pair_ranks",
    "pairs_of",
    "participation_ratio",
    "plain",
    "rankme",
    "rows_of",
    "scan",
    "shuffled",
    "singular_values",
    "some_of",
    "spaced",
    "spectrum",
    "split_duplicates",
    "two_sample",
    "uniform_law",
    "uniformity",
    "unit",
    "versus",
    "voted",
]
