"""Views: random transformations of samples, whose chance depends on the sample's name alone.

Every one is a value, called as `(batch, ids, seed, epoch, view) -> (views, parameters)`.

Example:
    >>> import torch
    >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    >>> x1, omega1 = SimCLR.large(32)(images, ids=range(4), seed=0, epoch=0, view=0)
    >>> x2, omega2 = SimCLR.large(32)(images, ids=range(4), seed=0, epoch=0, view=1)
    >>> x1.shape, omega1.dtype.names[:4]
    (torch.Size([4, 3, 32, 32]), ('top', 'left', 'height', 'width'))
"""

from chiaroscuro.views.arrays import Jitter, Mask
from chiaroscuro.views.chain import Chain
from chiaroscuro.views.counter import Draws
from chiaroscuro.views.directions import Directions
from chiaroscuro.views.labelled import LabelledContext
from chiaroscuro.views.lie import LieAction, RigidMotion
from chiaroscuro.views.multicrop import MultiCrop
from chiaroscuro.views.on_device import Unfinished
from chiaroscuro.views.render import Backend, backend, render
from chiaroscuro.views.rewrites import Rewrites
from chiaroscuro.views.series import Standardise, Window
from chiaroscuro.views.simclr import PARAMETERS, STRENGTHS, SimCLR
from chiaroscuro.views.splits import PatchSplit, TokenSplit
from chiaroscuro.views.view import View

__all__ = [
    "PARAMETERS",
    "STRENGTHS",
    "Backend",
    "Chain",
    "Directions",
    "Draws",
    "Jitter",
    "LabelledContext",
    "LieAction",
    "Mask",
    "MultiCrop",
    "PatchSplit",
    "Rewrites",
    "RigidMotion",
    "SimCLR",
    "Standardise",
    "TokenSplit",
    "Unfinished",
    "View",
    "Window",
    "backend",
    "render",
]
