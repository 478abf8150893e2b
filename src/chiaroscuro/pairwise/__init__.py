"""Log-sum-exp over candidates in tiles, never the whole matrix; and which candidates count."""

from chiaroscuro.pairwise.blocks import by_blocks, recomputed, rows_at_once
from chiaroscuro.pairwise.layout import Layout
from chiaroscuro.pairwise.logsumexp import log_sum_exp
from chiaroscuro.pairwise.negatives import (
    AllButPair,
    AllButSelf,
    Negatives,
    OnlyPositive,
    OtherView,
    SameView,
)
from chiaroscuro.pairwise.prepared import prepare

__all__ = [
    "AllButPair",
    "AllButSelf",
    "Layout",
    "Negatives",
    "OnlyPositive",
    "OtherView",
    "SameView",
    "by_blocks",
    "log_sum_exp",
    "prepare",
    "recomputed",
    "rows_at_once",
]
