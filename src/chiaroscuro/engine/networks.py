"""The networks of a training: one encoder or two, projectors, and a predictor if asked for."""

from __future__ import annotations

import functools
import os
import shutil
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.engine.settings import NetworkSettings, model_names
from chiaroscuro.errors import InputError, need
from chiaroscuro.models import Model, Projector
from chiaroscuro.spec import parse

__all__ = ["Networks", "as_compiled", "build"]


class Networks(nn.Module):
    """Encoders and projectors of the two sides of a pair; side 1 is side 0 where there is one.

        h = encoder_side(x),   z = projector_side(h),   and predictor(z) where there is one

    Where both sides share a network, both views go through it in one batch, so that they share
    batch statistics, as in the code of [chen2020simclr]. Pictures are in channels_last inside.

    Args:
        encoders, projectors: one or two of each.
        predictor: applied by `forward` alone; None is none.
    """

    def __init__(
        self, encoders: list[Model], projectors: list[Model], predictor: Model | None = None
    ):
        super().__init__()
        self.encoders, self.projectors = nn.ModuleList(encoders), nn.ModuleList(projectors)
        self.predictor = predictor
        self.layout = _layout(self)
        self.to(memory_format=self.layout)  # type: ignore[call-overload]

    def forward(
        self, x1: Tensor, x2: Tensor | None = None, side: int = 0
    ) -> Tensor | tuple[Tensor, Tensor]:
        """What the objective sees: of both views, or of one that belongs to `side`."""
        if x2 is None:
            z = self.project(self.encode(x1, side), side)
            return z if self.predictor is None else self.predictor(z)
        if len(self.encoders) > 1 or x1.shape != x2.shape:
            one, two = self(x1, side=0), self(x2, side=1)
            return one, two
        z1, z2 = self(torch.cat([x1, x2])).split([len(x1), len(x2)])
        return z1, z2

    def encode(self, x: Tensor, side: int = 0) -> Tensor:
        """The representations h of one side."""
        x = x.contiguous(memory_format=self.layout) if x.ndim == 4 else x
        return self.encoders[min(side, len(self.encoders) - 1)](x)

    def project(self, h: Tensor, side: int = 0) -> Tensor:
        """The projections z of representations of one side."""
        return self.projectors[min(side, len(self.projectors) - 1)](h)


def _layout(networks: nn.Module) -> torch.memory_format:
    """Channels last, which convolutions on a CPU like; but not for fewer than 8 channels, where
    torch 2.13 writes beyond its memory in the backward pass."""
    narrow = [m for m in networks.modules() if isinstance(m, nn.Conv2d) and m.out_channels < 8]
    return torch.contiguous_format if narrow else torch.channels_last


def build(settings: NetworkSettings, seed: int) -> Networks:
    """Networks with fresh weights, a function of the settings and the seed alone.

    torch's generator is left as it was.

    Args:
        settings: the texts of encoder, projector and predictor.
        seed: of the weights.

    Example:
        >>> from chiaroscuro.engine import NetworkSettings
        >>> settings = NetworkSettings(encoder="MLP(d_in=4, d=8)", projector="Projector(d=3)")
        >>> build(settings, seed=0)(torch.randn(5, 4)).shape
        torch.Size([5, 3])
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        texts = {name: getattr(settings, name) for name in ("encoder", "second_encoder")}
        encoders = [_encoder(k, t) for k, t in texts.items() if t.strip()]
        need(bool(encoders), "`network.encoder` needs a model; received an empty text.")
        projectors = [_projector("projector", settings.projector, e.d) for e in encoders]
        predictor = None
        if settings.predictor.strip():
            predictor = _projector("predictor", settings.predictor, projectors[0].d)
        return Networks(encoders, projectors, predictor)


def as_compiled(networks: Networks) -> Any:
    """The same networks, to be called: compiled by torch at the first call.

    Their own `state_dict` keeps its names, and what was trained compiled loads anywhere.

    Args:
        networks: of which the parameters are shared.
    """
    names = (os.environ.get("CXX"), "c++", "g++", "clang++", "cl")
    need(
        any(shutil.which(name) for name in names if name),
        "`compile = true` needs a C++ compiler, `c++`, `g++`, `clang++` or what `CXX` names; found "
        "none of them.",
    )
    return torch.compile(networks)


def _encoder(key: str, text: str) -> Model:
    need(
        "from_transformers" not in text,
        lambda: (
            f"`network.{key}` needs a model that reads texts as bytes, tokens 0 to 257; received "
            f"`{text}`, which has a vocabulary of its own. Take `SequenceTransformer(n_tokens=258, "
            "padding=0)`, or embed the texts with that model and train on the arrays."
        ),
    )
    try:
        made = parse(text, model_names())
    except InputError as error:
        raise InputError(f"`network.{key}`: {error}") from None
    need(
        isinstance(made, Model),
        lambda: f"`network.{key}` needs a model; received `{type(made).__name__}`.",
    )
    return made


def _projector(key: str, text: str, d_in: int) -> Model:
    try:
        return parse(text, {"Projector": functools.partial(Projector, d_in)})
    except InputError as error:
        raise InputError(f"`network.{key}`: {error}") from None
