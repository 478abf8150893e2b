"""Advice: one small rule for each ill, from measures to findings."""

from chiaroscuro.diagnostics.advice.finding import SEVERITIES, Cost, Finding, Known, graded
from chiaroscuro.diagnostics.advice.ranking import NEEDS, RULES, checks, findings

__all__ = [
    "NEEDS",
    "RULES",
    "SEVERITIES",
    "Cost",
    "Finding",
    "Known",
    "checks",
    "findings",
    "graded",
]
