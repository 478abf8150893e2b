"""Diagnostics: functions of embeddings. Spectrum, sphere, neighbours, probes; evaluation."""

from chiaroscuro.diagnostics.advice import Finding, Known, findings
from chiaroscuro.diagnostics.agreement import adjusted_rand, mutual_information
from chiaroscuro.diagnostics.anatomy import Anatomy, Contrast, anatomy
from chiaroscuro.diagnostics.clusters import GraphClusters, graph_clusters
from chiaroscuro.diagnostics.controls import Control, Interval, interval, shuffled
from chiaroscuro.diagnostics.diagnosis import Diagnosis, diagnose
from chiaroscuro.diagnostics.dimensions import Dimensions, dimensions
from chiaroscuro.diagnostics.distributional import (
    DistributionalAlignment,
    context_distances,
    distributional_alignment,
)
from chiaroscuro.diagnostics.duplicates import Duplicates, near_duplicates
from chiaroscuro.diagnostics.evaluation import SUBJECTS, evaluate, glance
from chiaroscuro.diagnostics.factors import Readout, Survival, readout, survival
from chiaroscuro.diagnostics.figures import draw
from chiaroscuro.diagnostics.generator import Generator, generator
from chiaroscuro.diagnostics.geometry import geometry, weights_of
from chiaroscuro.diagnostics.hubness import Closest, Hubness, closest, hubness
from chiaroscuro.diagnostics.matching import retrieval, zero_shot_accuracy
from chiaroscuro.diagnostics.meaning import read_task
from chiaroscuro.diagnostics.measuring import About, linear_agreement, pair_rank
from chiaroscuro.diagnostics.monitoring import monitor
from chiaroscuro.diagnostics.movement import Effect, Movement, movement
from chiaroscuro.diagnostics.neighbours import knn_accuracy, knn_leave_one_out
from chiaroscuro.diagnostics.neural import (
    ClusterKernel,
    cluster_kernel,
    kernel_alignment,
    sample_kernel,
)
from chiaroscuro.diagnostics.page import page
from chiaroscuro.diagnostics.probe import PROBES, logistic_probe, ridge_probe, sgd_probe
from chiaroscuro.diagnostics.projector import (
    Augmentations,
    Displacements,
    augmentations,
    discarded,
    displacements,
    subspace_angles,
    unexplained,
)
from chiaroscuro.diagnostics.record import Record
from chiaroscuro.diagnostics.regions import (
    AffineMaps,
    Regions,
    affine_maps,
    local_unexplained,
    regions,
)
from chiaroscuro.diagnostics.rows import Labelled
from chiaroscuro.diagnostics.semantics import (
    Equivalence,
    SemanticRatio,
    equivalence,
    semantic_ratio,
    tabulate,
)
from chiaroscuro.diagnostics.span import Span, augmentation_span, predicted_rank
from chiaroscuro.diagnostics.spectrum import (
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
from chiaroscuro.diagnostics.sphere import (
    Norms,
    alignment,
    mean_cosine,
    norms,
    uniform_law,
    uniformity,
)
from chiaroscuro.diagnostics.tables import table

__all__ = [
    "PROBES",
    "SUBJECTS",
    "About",
    "AffineMaps",
    "Anatomy",
    "Augmentations",
    "Closest",
    "ClusterKernel",
    "Contrast",
    "Control",
    "Decay",
    "Diagnosis",
    "Dimensions",
    "Displacements",
    "DistributionalAlignment",
    "Duplicates",
    "Effect",
    "Equivalence",
    "Finding",
    "Generator",
    "GraphClusters",
    "Hubness",
    "Interval",
    "Known",
    "Labelled",
    "Movement",
    "Norms",
    "Readout",
    "Record",
    "Regions",
    "SemanticRatio",
    "Span",
    "Spectrum",
    "Survival",
    "absolute_rank",
    "adjusted_rand",
    "affine_maps",
    "alignment",
    "anatomy",
    "augmentation_span",
    "augmentations",
    "closest",
    "cluster_kernel",
    "context_distances",
    "decay",
    "diagnose",
    "dimensions",
    "discarded",
    "displacements",
    "distributional_alignment",
    "draw",
    "effective_rank",
    "equivalence",
    "evaluate",
    "findings",
    "generator",
    "geometry",
    "glance",
    "graph_clusters",
    "hubness",
    "interval",
    "kernel_alignment",
    "knn_accuracy",
    "knn_leave_one_out",
    "linear_agreement",
    "local_unexplained",
    "logistic_probe",
    "mean_cosine",
    "monitor",
    "movement",
    "mutual_information",
    "near_duplicates",
    "norms",
    "numerical_rank",
    "page",
    "pair_rank",
    "participation_ratio",
    "predicted_rank",
    "read_task",
    "readout",
    "regions",
    "retrieval",
    "ridge_probe",
    "sample_kernel",
    "semantic_ratio",
    "sgd_probe",
    "shuffled",
    "singular_values",
    "spectrum",
    "subspace_angles",
    "survival",
    "table",
    "tabulate",
    "unexplained",
    "uniform_law",
    "uniformity",
    "weights_of",
    "zero_shot_accuracy",
]
