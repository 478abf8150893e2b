"""Diagnostics: functions of embeddings. Spectrum, sphere, neighbours, probes; evaluation."""

from chiaroscuro.diagnostics.evaluation import SUBJECTS, evaluate, glance
from chiaroscuro.diagnostics.neighbours import knn_accuracy, knn_leave_one_out
from chiaroscuro.diagnostics.probe import PROBES, logistic_probe, ridge_probe, sgd_probe
from chiaroscuro.diagnostics.retrieval import retrieval, zero_shot_accuracy
from chiaroscuro.diagnostics.rows import Labelled
from chiaroscuro.diagnostics.spectrum import (
    effective_rank,
    numerical_rank,
    participation_ratio,
    singular_values,
)
from chiaroscuro.diagnostics.sphere import alignment, mean_cosine, uniformity
from chiaroscuro.diagnostics.tables import table

__all__ = [
    "PROBES",
    "SUBJECTS",
    "Labelled",
    "alignment",
    "effective_rank",
    "evaluate",
    "glance",
    "knn_accuracy",
    "knn_leave_one_out",
    "logistic_probe",
    "mean_cosine",
    "numerical_rank",
    "participation_ratio",
    "retrieval",
    "ridge_probe",
    "sgd_probe",
    "singular_values",
    "table",
    "uniformity",
    "zero_shot_accuracy",
]
