"""The networks of a training: one encoder or two, projectors, and a predictor if asked for."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.data import SECOND, Dataset, Tokenizer
from chiaroscuro.engine.crops import Crops, Triples, views_of
from chiaroscuro.engine.settings import NetworkSettings, model_names, require_notation
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.models import Model, Projector, Prototypes
from chiaroscuro.spec import parse

__all__ = [
    "Modules",
    "Networks",
    "as_compiled",
    "build",
    "dimension",
    "evaluating",
    "require_module",
    "require_vocabulary",
    "taking",
]


class Networks(nn.Module):
    """Encoders and projectors of the two sides of a pair; side 1 is side 0 where there is one.

        h = encoder_side(x),   z = projector_side(h),   and predictor(z) where there is one

    Where both sides share a network, both views go through it in one batch, so that they share
    batch statistics, as in the code of [chen2020simclr]. Images are in channels_last inside.

    Args:
        encoders: one or two modules from samples to (n, d).
        projectors: one for each encoder, or one for both; None leaves h as it is.
        predictor: applied by `forward` alone; None is none.

    Example:
        >>> Networks([nn.Linear(4, 3)])(torch.ones(2, 4)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self,
        encoders: Sequence[nn.Module],
        projectors: Sequence[nn.Module] | None = None,
        predictor: nn.Module | None = None,
    ):
        super().__init__()
        need(
            1 <= len(encoders) <= 2,
            lambda: f"`Networks` needs one encoder or two; received {len(encoders)}.",
        )
        for module in encoders:
            require_module("encoder", module)
        self.encoders = nn.ModuleList(encoders)
        self.projectors = nn.ModuleList(projectors or [nn.Identity()])
        self.predictor = predictor
        self.layout = _layout(self)
        self.to(memory_format=self.layout)  # type: ignore[call-overload]

    def forward(self, x1: Any, x2: Any = None, side: int = 0, projections: bool = False) -> Any:
        """Return what the objective sees: of all views, or of one that belongs to `side`.

        Args:
            x1: the first view.
            x2: the second, or `Crops`: the second and all further ones, of any sizes that the
                encoder takes; those of one size go through it in one batch, and all through the
                projector. Or `Triples`: the second and hard negatives, which belong to its side.
            side: side of a single view.
            projections: return a pair of tuples instead: what the predictor makes of each view,
                and the projections it was made of.
        """
        if x2 is None:
            z = self.project(self.encode(x1, side), side)
            return self.predict(z)
        if isinstance(x2, Triples):
            z1, z2 = self(x1, x2[0])
            return z1, Triples([z2, self(x2[1], side=1)])
        views = views_of(x1, x2)
        if isinstance(x2, Crops):
            need(
                len(self.encoders) == 1,
                lambda: f"{len(views)} crops need one encoder; there are {len(self.encoders)}.",
            )
            h = self._encode_by_size(views)
        elif len(self.encoders) > 1 or not _stackable(x1, x2):
            apart = [self.project(self.encode(x, side), side) for side, x in enumerate(views)]
            predicted = tuple(self.predict(z) for z in apart)
            return (predicted, tuple(apart)) if projections else predicted
        else:
            h = self.encode(torch.cat(views))
        z, sizes = self.project(h), [len(x) for x in views]
        need(
            isinstance(z, Tensor),
            lambda: (
                f"A network needs to give a tensor (n, d) for {len(x1)} pairs; "
                f"`{type(self.encoders[0]).__name__}` gives a `{type(z).__name__}`. Pick the "
                "tensor out of it in a module of your own."
            ),
        )
        p = self.predict(z).split(sizes)
        if projections:
            return p, z.split(sizes)
        return (p[0], Crops(p[1:])) if isinstance(x2, Crops) else tuple(p)

    def _encode_by_size(self, views: list[Tensor]) -> Tensor:
        """Return h of all views, first to last."""
        h: dict[int, Tensor] = {}
        shapes = list(dict.fromkeys(x.shape[1:] for x in views))
        for shape in shapes:
            alike = [v for v, x in enumerate(views) if x.shape[1:] == shape]
            rows = self.encode(torch.cat([views[v] for v in alike]))
            h |= zip(alike, rows.split([len(views[v]) for v in alike]), strict=True)
        return torch.cat([h[v] for v in range(len(views))])

    def predict(self, z: Tensor) -> Tensor:
        """Return what the predictor makes of projections: themselves where there is none."""
        return z if self.predictor is None else self.predictor(z)

    def encode(self, x: Tensor, side: int = 0) -> Tensor:
        """Return the representations h of one side."""
        if isinstance(x, Tensor) and x.ndim == 4:
            x = x.contiguous(memory_format=self.layout)
        return self.encoders[min(side, len(self.encoders) - 1)](x)

    def project(self, h: Tensor, side: int = 0) -> Tensor:
        """Return the projections z of representations of one side."""
        return self.projectors[min(side, len(self.projectors) - 1)](h)

    @property
    def d(self) -> int | None:
        """Dimension of the projections, where a module says so; None where none does."""
        for module in (self.projectors[-1], self.encoders[-1]):
            if not isinstance(module, nn.Identity):
                d = getattr(module, "d", None)
                return d if isinstance(d, int) else None
        return None


def require_module(name: str, module: Any) -> None:
    """Refuse what is no module of torch, and modules whose shapes are still open.

    Args:
        name: what it is for.
        module: to be trained.
    """
    need(
        isinstance(module, nn.Module),
        lambda: (
            f"`{name}` needs a module of torch; received "
            + (
                f"the class `{module.__name__}`: call it."
                if isinstance(module, type)
                else f"a `{type(module).__name__}`."
            )
        ),
    )
    lazy = [name for name, p in module.named_parameters() if nn.parameter.is_lazy(p)]
    need(
        not lazy,
        lambda: (
            f"`{name}` needs shapes before it is trained; {len(lazy)} parameters of "
            f"`{type(module).__name__}` have none, the first is `{lazy[0]}`. Pass a batch through "
            "it first."
        ),
    )


def _stackable(x1: Any, x2: Any) -> bool:
    """Return whether two views go through a shared network as one batch."""
    tensors = isinstance(x1, Tensor) and isinstance(x2, Tensor)
    return tensors and x1.shape == x2.shape and x1.dtype == x2.dtype


def _layout(networks: nn.Module) -> torch.memory_format:
    """Channels last, which convolutions on a CPU like; but not for fewer than 8 channels, where
    torch 2.13 writes beyond its memory in the backward pass."""
    narrow = [m for m in networks.modules() if isinstance(m, nn.Conv2d) and m.out_channels < 8]
    return torch.contiguous_format if narrow else torch.channels_last


@dataclass(frozen=True, eq=False)
class Modules:
    """Modules that replace the texts of `NetworkSettings`; None where the text applies."""

    encoder: nn.Module | None = None
    second_encoder: nn.Module | None = None
    projector: nn.Module | None = None
    predictor: nn.Module | None = None

    def any(self) -> bool:
        """Return whether one is given."""
        return bool(self.given())

    def given(self) -> list[str]:
        """Return the names of those that are given."""
        return [name for name, value in vars(self).items() if value is not None]


def build(
    settings: NetworkSettings,
    seed: int,
    modules: Modules | None = None,
    dimensions: Sequence[int | None] = (),
) -> Networks:
    """Build networks with fresh weights, which depend only on the settings and the seed.

    torch's generator is left as it was.

    Args:
        settings: the texts of encoder, projector and predictor.
        seed: seed of the weights.
        modules: taken as they are, weights and all, in the place of texts.
        dimensions: of each encoder's output, None where the encoder says it itself.

    Example:
        >>> from chiaroscuro.engine import NetworkSettings
        >>> settings = NetworkSettings(encoder="MLP(d_in=4, d=8)", projector="Projector(d=3)")
        >>> build(settings, seed=0)(torch.randn(5, 4)).shape
        torch.Size([5, 3])
    """
    given = modules or Modules()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoders: list[nn.Module] = []
        for name in ("encoder", "second_encoder"):
            module, text = getattr(given, name), getattr(settings, name)
            if module is not None:
                encoders.append(module)
            elif text.strip():
                encoders.append(_encoder(name, text))
        need(bool(encoders), "`network.encoder` needs a model; received an empty text.")
        known = dict(enumerate(dimensions))
        size = lambda side: known.get(side) or dimension(encoders[side])
        if given.projector is not None:
            projectors = [given.projector]
        elif not settings.projector.strip():
            projectors = [nn.Identity()]
        else:
            projectors = [
                _projector("projector", settings.projector, size(side))
                for side in range(len(encoders))
            ]
        predictor = given.predictor
        if predictor is None and settings.predictor.strip():
            d = getattr(projectors[0], "d", None)
            d_in = d if isinstance(d, int) else size(0)
            predictor = _projector("predictor", settings.predictor, d_in)
        return Networks(encoders, projectors, predictor)


def dimension(encoder: nn.Module, x: Any = None) -> int:
    """Return the dimension of an encoder's output: as it says, or as it gives for samples.

    Args:
        encoder: a model of ours, or any module.
        x: two samples, needed for a module that does not say.
    """
    d = getattr(encoder, "d", None)
    if isinstance(d, int) and (x is None or isinstance(encoder, Model)):
        return d
    name = type(encoder).__name__
    need(
        x is not None,
        lambda: f"`{name}` needs an attribute `d`, the dimension of its output; it has none.",
    )
    device = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    with evaluating(encoder), torch.no_grad(), taking(encoder, x):
        h = encoder(x.to(device))
    need(
        isinstance(h, Tensor) and h.ndim == 2 and len(h) == len(x),
        lambda: (
            f"An encoder needs to map {len(x)} samples to a matrix ({len(x)}, d); `{name}` gives "
            + (
                f"{tuple(h.shape)}. Pool and flatten its output first."
                if isinstance(h, Tensor)
                else f"a `{type(h).__name__}`. Pick the tensor out of it in a module of your own."
            )
        ),
    )
    return int(h.shape[1])


@contextlib.contextmanager
def taking(module: nn.Module, *inputs: Any) -> Iterator[None]:
    """Say of what a module raises which samples it was given.

    Args:
        module: that is called.
        inputs: the samples.
    """
    try:
        yield
    except (ChiaroError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        name = getattr(module, "origin", None) or type(module).__name__
        came = " and ".join(
            f"{tuple(x.shape)} in {str(x.dtype).removeprefix('torch.')}"
            if isinstance(x, Tensor)
            else f"a `{type(x).__name__}`"
            for x in inputs
        )
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(
            f"`{name}` needs to take samples as the data and views give them, {came}; it "
            f"raised {type(error).__name__}: {reason}."
        ) from error


@contextlib.contextmanager
def evaluating(networks: nn.Module) -> Iterator[None]:
    """Put networks into evaluation mode, and every module back into its own mode afterwards."""
    modes = {module: module.training for module in networks.modules()}
    networks.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def as_compiled(networks: Networks) -> Any:
    """Return the same networks, to be called: compiled by torch at the first call.

    Their own `state_dict` keeps its names, and what was trained compiled loads anywhere.

    Args:
        networks: networks of which the parameters are shared.
    """
    names = (os.environ.get("CXX"), "c++", "g++", "clang++", "cl")
    need(
        any(shutil.which(name) for name in names if name),
        "`compile = true` needs a C++ compiler, `c++`, `g++`, `clang++` or what `CXX` names; found "
        "none of them.",
    )
    return torch.compile(networks)


def _encoder(key: str, text: str) -> Model:
    require_notation(key, text)
    try:
        made = parse(text, model_names())
    except InputError as error:
        raise InputError(f"`network.{key}`: {error} See `chiaro list encoders`.") from None
    need(
        isinstance(made, Model),
        lambda: f"`network.{key}` needs a model; received `{type(made).__name__}`.",
    )
    return made


def require_vocabulary(networks: Networks, data: Dataset) -> None:
    """Refuse an encoder that reads other tokens than those that texts become.

    Args:
        networks: networks of which the encoder of texts is looked at.
        data: with their tokenizer.
    """
    inputs = set(data.inputs) - {SECOND}
    texts = inputs & {"texts", "captions"}
    if not texts or (inputs - texts and len(networks.encoders) == 1):
        return
    encoder, tokenizer = networks.encoders[-1], data.tokenizer or Tokenizer()
    text = getattr(encoder, "origin", "") or repr(encoder)
    theirs = getattr(encoder, "own_vocabulary", 0)
    need(
        not theirs or bool(tokenizer.source),
        lambda: (
            f"`{text}` has a vocabulary of its own, of {theirs:,} tokens, and texts are read as "
            "bytes: set `data.tokenizer` to the folder that holds its `tokenizer.json`, or take "
            "`SequenceTransformer(n_tokens=258, padding=0)`."
        ),
    )
    size = theirs or getattr(encoder, "n_tokens", tokenizer.n_tokens)
    need(
        tokenizer.n_tokens <= size,
        lambda: (
            f"`{text}` takes tokens from 0 to {size - 1}; texts become tokens from 0 to "
            f"{tokenizer.n_tokens - 1}: set `n_tokens={tokenizer.n_tokens}`, or the tokenizer of "
            "that model."
        ),
    )
    padding = getattr(encoder, "padding", None)
    need(
        padding in (None, tokenizer.padding),
        lambda: (
            f"`{text}` takes token {padding} for padding; the tokenizer fills short texts with "
            f"{tokenizer.padding}: set `padding={tokenizer.padding}`."
        ),
    )


def projector_names(d_in: int) -> dict[str, Any]:
    """Return what a projector's text may name, for representations of `d_in` dimensions."""
    return {cls.__name__: functools.partial(cls, d_in) for cls in (Projector, Prototypes)}


def _projector(key: str, text: str, d_in: int) -> Model:
    require_notation(key, text)
    try:
        return parse(text, projector_names(d_in))
    except InputError as error:
        raise InputError(f"`network.{key}`: {error}") from None
