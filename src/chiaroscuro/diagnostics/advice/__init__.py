"""Advice: one small rule for each ill, from measures to findings."""

from chiaroscuro.diagnostics.advice.finding import SEVERITIES, Cost, Facts, Finding, graded
from chiaroscuro.diagnostics.advice.ranking import NEEDS, RULES, checks, findings

__all__ = [
    "NEEDS",
    "RULES",
    "SEVERITIES",
    "Cost",
    "Facts",
    "Finding",
    "checks",
    "findings",
    "graded",
]
