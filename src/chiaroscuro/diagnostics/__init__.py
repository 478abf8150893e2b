"""Diagnostics: functions of embeddings. Spectrum, sphere, neighbours, probes; evaluation."""

from chiaroscuro.diagnostics.anatomy import Anatomy, Contrast, anatomy
from chiaroscuro.diagnostics.controls import Control, Interval, interval, shuffled
from chiaroscuro.diagnostics.dimensions import Dimensions, dimensions
from chiaroscuro.diagnostics.duplicates import Duplicates, near_duplicates
from chiaroscuro.diagnostics.evaluation import SUBJECTS, evaluate, glance
from chiaroscuro.diagnostics.factors import KINDS, Readout, Survival, readout, survival
from chiaroscuro.diagnostics.hubness import Closest, Hubness, closest, hubness
from chiaroscuro.diagnostics.neighbours import knn_accuracy, knn_leave_one_out
from chiaroscuro.diagnostics.probe import PROBES, logistic_probe, ridge_probe, sgd_probe
from chiaroscuro.diagnostics.record import Record
from chiaroscuro.diagnostics.retrieval import retrieval, zero_shot_accuracy
from chiaroscuro.diagnostics.rows import Labelled
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
    "KINDS",
    "PROBES",
    "SUBJECTS",
    "Anatomy",
    "Closest",
    "Contrast",
    "Control",
    "Decay",
    "Dimensions",
    "Duplicates",
    "Hubness",
    "Interval",
    "Labelled",
    "Norms",
    "Readout",
    "Record",
    "Spectrum",
    "Survival",
    "absolute_rank",
    "alignment",
    "anatomy",
    "closest",
    "decay",
    "dimensions",
    "effective_rank",
    "evaluate",
    "glance",
    "hubness",
    "interval",
    "knn_accuracy",
    "knn_leave_one_out",
    "logistic_probe",
    "mean_cosine",
    "near_duplicates",
    "norms",
    "numerical_rank",
    "participation_ratio",
    "readout",
    "retrieval",
    "ridge_probe",
    "sgd_probe",
    "shuffled",
    "singular_values",
    "spectrum",
    "survival",
    "table",
    "uniform_law",
    "uniformity",
    "zero_shot_accuracy",
]
