"""Objectives: InfoNCE(kernel, negatives) and the few that are not values of it."""

from chiaroscuro.objectives.adapting import adapt, adapts
from chiaroscuro.objectives.align_uniform import AlignUniform
from chiaroscuro.objectives.barlow_twins import BarlowTwins
from chiaroscuro.objectives.byol import BYOL
from chiaroscuro.objectives.combinations import Grouped, Matryoshka, OnDims, Weighted
from chiaroscuro.objectives.debiased import Debiased
from chiaroscuro.objectives.dino import DINO
from chiaroscuro.objectives.generalised import Generalised
from chiaroscuro.objectives.infonce import InfoNCE
from chiaroscuro.objectives.nnclr import NNCLR
from chiaroscuro.objectives.objective import Batch, Objective
from chiaroscuro.objectives.siglip import SigLIP
from chiaroscuro.objectives.simsiam import SimSiam
from chiaroscuro.objectives.spectral import SpectralContrastive
from chiaroscuro.objectives.supcon import SupCon
from chiaroscuro.objectives.swav import SwAV
from chiaroscuro.objectives.vicreg import VICReg

__all__ = [
    "BYOL",
    "DINO",
    "NNCLR",
    "AlignUniform",
    "BarlowTwins",
    "Debiased",
    "Generalised",
    "Grouped",
    "InfoNCE",
    "Matryoshka",
    "Objective",
    "OnDims",
    "SigLIP",
    "SimSiam",
    "SpectralContrastive",
    "SupCon",
    "SwAV",
    "VICReg",
    "Weighted",
    "adapt",
    "adapts",
]
