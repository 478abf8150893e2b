"""What an export consists of, and how images are prepared for the exported network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from chiaroscuro.models import Model
from chiaroscuro.models.names import names_in
from chiaroscuro.views import MultiCrop

__all__ = ["Files", "Preprocessing", "renamed"]


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the tensor that a network takes: resized, divided by 255, normalised.

    Args:
        channels, size: of the image; None where the network does not take images.
        mean, std: per channel, of values from 0 to 1.
    """

    channels: int | None
    size: int | None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @classmethod
    def of(cls, encoder: Model, view: Any) -> Preprocessing:
        """Return that of an encoder which was trained on a view."""
        example = encoder.example(1)
        if example.ndim != 4:
            return cls(None, None)
        channels = example.shape[1]
        if isinstance(view, MultiCrop):  # what is embedded looks like its first crops
            view = view.member(0)
        size = getattr(view, "size", None) or example.shape[-1]
        mean, std = (getattr(view, name, None) for name in ("mean", "std"))
        whole = lambda values, default: tuple(values) if values else (default,) * channels
        return cls(channels, int(size), whole(mean, 0.0), whole(std, 1.0))

    def as_dict(self) -> dict[str, Any]:
        """Return it for a JSON file; empty where there is no image."""
        if self.size is None:
            return {}
        return {
            "channels": self.channels,
            "size": self.size,
            "rescale": 1 / 255,
            "mean": list(self.mean),
            "std": list(self.std),
            "interpolation": "bilinear",
        }


@dataclass(frozen=True)
class Files:
    """The files of an export, before they are written.

    Args:
        tensors: by the names of the other library, for `model.safetensors`.
        documents: JSON documents by file name.
        usage: a few lines of Python that load the export.
    """

    tensors: Mapping[str, Tensor]
    documents: Mapping[str, Any] = field(default_factory=dict)
    usage: str = ""

    def write(self, folder: Path) -> None:
        """Write them into a folder that exists."""
        # safetensors takes no strides: copies of channels-last weights
        plain = {name: value.detach().cpu().contiguous() for name, value in self.tensors.items()}
        save_file(plain, folder / "model.safetensors", metadata={"format": "pt"})
        for name, document in self.documents.items():
            text = json.dumps(document, indent=2, ensure_ascii=False)
            (folder / name).write_text(text + "\n", encoding="utf-8")


def renamed(encoder: nn.Module, library: str) -> dict[str, Tensor]:
    """Return the weights of a `ResNet` or `ViT` under the names of another library's files."""
    state = encoder.state_dict()
    out: dict[str, Tensor] = {}
    for name, theirs in (names_in(encoder, library) or {}).items():
        parts = state[name].chunk(len(theirs)) if len(theirs) > 1 else (state[name],)
        out |= dict(zip(theirs, parts, strict=True))
    return out
