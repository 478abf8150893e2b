"""Labs: one file per experiment of a paper, which runs, draws and judges itself.

A lab uses the public API only. `all_labs()` lists them, `reproduce("V4")` runs one.
"""

from chiaroscuro.labs.claim import (
    KINDS,
    VERDICTS,
    Claim,
    Erratum,
    Interval,
    Remark,
    Stated,
    interval,
    judged,
    satisfied,
)
from chiaroscuro.labs.lab import SCALES, Keep, Lab, all_labs, at_once, chosen
from chiaroscuro.labs.reproduce import Report, reproduce
from chiaroscuro.labs.show import Show, tally

__all__ = [
    "KINDS",
    "SCALES",
    "VERDICTS",
    "Claim",
    "Erratum",
    "Interval",
    "Keep",
    "Lab",
    "Remark",
    "Report",
    "Show",
    "Stated",
    "all_labs",
    "at_once",
    "chosen",
    "interval",
    "judged",
    "reproduce",
    "satisfied",
    "tally",
]
