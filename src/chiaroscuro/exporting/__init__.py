"""Take a trained network elsewhere: other libraries' formats, and a folder that loads alone."""

from chiaroscuro.exporting.files import Preprocessing
from chiaroscuro.exporting.pretrained import (
    TARGETS,
    Pretrained,
    export,
    load_pretrained,
    save_pretrained,
)

__all__ = [
    "TARGETS",
    "Preprocessing",
    "Pretrained",
    "export",
    "load_pretrained",
    "save_pretrained",
]
