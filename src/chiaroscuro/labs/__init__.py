"""Labs: one file per experiment of a paper, which runs, draws and judges itself.

A lab looks in through the public door only. `found()` lists them, `reproduce("V4")` runs one.
"""

from chiaroscuro.labs.claim import VERDICTS, Claim, Erratum, Stated, satisfied
from chiaroscuro.labs.lab import SCALES, Keep, Lab, at_once, chosen, found
from chiaroscuro.labs.reproduce import Report, reproduce
from chiaroscuro.labs.show import Show, tally

__all__ = [
    "SCALES",
    "VERDICTS",
    "Claim",
    "Erratum",
    "Keep",
    "Lab",
    "Report",
    "Show",
    "Stated",
    "at_once",
    "chosen",
    "found",
    "reproduce",
    "satisfied",
    "tally",
]
