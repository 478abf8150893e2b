"""Advice: one small rule for each pathology, from measures to findings."""

from chiaroscuro.diagnostics.advice.collapse import (
    dead_dimensions,
    dimensional_collapse,
    full_collapse,
)
from chiaroscuro.diagnostics.advice.finding import SEVERITIES, Finding, Known
from chiaroscuro.diagnostics.advice.negatives import false_negatives, few_negatives
from chiaroscuro.diagnostics.advice.pairs import mispaired_views, strong_views, weak_views
from chiaroscuro.diagnostics.advice.ranking import RULES, findings
from chiaroscuro.diagnostics.advice.samples import (
    duplicated_samples,
    exploding_norms,
    hubs,
    imbalanced_classes,
    leaked_label,
)
from chiaroscuro.diagnostics.advice.temperature import high_temperature, low_temperature
from chiaroscuro.diagnostics.advice.training import (
    projector_for_encoder,
    stuck_at_the_start,
    suppressed_style,
    untrained_model,
)

__all__ = [
    "RULES",
    "SEVERITIES",
    "Finding",
    "Known",
    "dead_dimensions",
    "dimensional_collapse",
    "duplicated_samples",
    "exploding_norms",
    "false_negatives",
    "few_negatives",
    "findings",
    "full_collapse",
    "high_temperature",
    "hubs",
    "imbalanced_classes",
    "leaked_label",
    "low_temperature",
    "mispaired_views",
    "projector_for_encoder",
    "strong_views",
    "stuck_at_the_start",
    "suppressed_style",
    "untrained_model",
    "weak_views",
]
