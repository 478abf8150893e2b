"""Objectives: InfoNCE(kernel, negatives) and the few that are not values of it."""

from chiaroscuro.objectives.adapting import adapt, adapts
from chiaroscuro.objectives.align_uniform import AlignUniform
from chiaroscuro.objectives.barlow_twins import BarlowTwins
from chiaroscuro.objectives.byol import BYOL
from chiaroscuro.objectives.combinations import OnDims, Weighted
from chiaroscuro.objectives.generalised import Generalised
from chiaroscuro.objectives.infonce import InfoNCE
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.objectives.spectral import SpectralContrastive
from chiaroscuro.objectives.supcon import SupCon
from chiaroscuro.objectives.vicreg import VICReg

__all__ = [
    "BYOL",
    "AlignUniform",
    "BarlowTwins",
    "Generalised",
    "InfoNCE",
    "Objective",
    "OnDims",
    "SpectralContrastive",
    "SupCon",
    "VICReg",
    "Weighted",
    "adapt",
    "adapts",
]
