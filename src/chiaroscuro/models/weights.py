"""Load weights of any origin into a network, and say exactly what fitted."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chiaroscuro.errors import InputError, need
from chiaroscuro.models.foreign import load_foreign
from chiaroscuro.models.model import Model
from chiaroscuro.models.names import naming_schemes
from chiaroscuro.models.vit import resampled

__all__ = [
    "Match",
    "Unread",
    "accept",
    "from_weights",
    "load_weights",
    "tensors_of",
    "unread",
    "without_weights",
]

HEADS = (
    *("fc", "head", "heads", "classifier", "last_linear", "head_dist", "pre_logits", "pooler"),
    *("projection_head", "prototypes"),
)
"""Submodules that classify or project: a file may have them where the network has none."""

_POSITIONS = ("pos_embed", "pos_embedding", "position_embeddings")
_COUNTERS = "num_batches_tracked"  # absent from files of old versions of torch, and unused
# where one file holds several networks of the same shape, the one that its authors evaluate
_PREFERRED = ("average", "teacher", "ema", "encoder_q", "base_encoder", "online", "student")
_SHOWN = 3


@dataclass(frozen=True)
class Unread:
    """Weights are not read at the moment.

    Args:
        folder: with `config.json` of models of transformers, or one folder for each of their names.
    """

    folder: Path | None

    def configuration(self, name: str) -> str:
        """Return the folder with the configuration of a model of transformers."""
        if self.folder is None:
            return name
        own = self.folder / Unread.key(name)
        return str(own if own.is_dir() else self.folder if self.folder.is_dir() else name)

    @staticmethod
    def key(name: str) -> str:
        """Return a file name for the name of a model."""
        return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "model"


_unread: ContextVar[Unread | None] = ContextVar("unread", default=None)


def unread() -> Unread | None:
    """Return whether and how weights are left unread at the moment; None if they are read."""
    return _unread.get()


@contextlib.contextmanager
def without_weights(folder: str | os.PathLike | None = None) -> Iterator[None]:
    """Build networks from their notation without reading the files of weights that it names.

    For networks whose weights are set afterwards, from a checkpoint, or are to be fresh. What is
    built keeps its notation.

    Args:
        folder: that keeps the configurations of models of transformers; None is where the notation
            says.

    Example:
        >>> from chiaroscuro.models import MLP
        >>> with without_weights():
        ...     from_weights(MLP(d_in=2, d=3), "moved.pth").d
        3
    """
    token = _unread.set(Unread(None if folder is None else Path(folder)))
    try:
        yield
    finally:
        _unread.reset(token)


@dataclass(frozen=True)
class Match:
    """Which tensors of a file went into a network.

    Args:
        loaded: names of the network's tensors that the file has in their shape.
        missing: the network's tensors that the file lacks.
        left_over: the file's tensors that the network lacks, its head apart.
        other_shape: the network's tensors that the file has in another shape.
        head: the file's tensors of a classification head, not used.
        resized: positional embeddings that were interpolated to another image size, and first
            convolutions that were adapted to another number of channels.
        prefix: that the file has in front of the names.
        outside: how many tensors of the file do not begin with the prefix: other networks.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()
    other_shape: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    prefix: str = ""
    outside: int = 0

    @property
    def complete(self) -> bool:
        """Whether every tensor has its counterpart."""
        return not (self.missing or self.left_over or self.other_shape)

    def __str__(self) -> str:
        counts = [
            f"{len(self.loaded)} tensors fit",
            _name_list(self.missing, "missing"),
            _name_list(self.left_over, "left over"),
            _name_list(self.other_shape, "of another shape"),
        ]
        if self.head:
            counts.append(_name_list(self.head, "of a head, not used"))
        if self.resized:
            counts.append(_name_list(self.resized, "resized"))
        if self.outside:
            counts.append(f"{self.outside} outside `{self.prefix}`")
        return ", ".join(counts)


def _named_heads(module: nn.Module) -> tuple[str, ...]:
    """Return the submodules that a network of timm states to be its classifier."""
    stated = getattr(module, "default_cfg", None)
    named = stated.get("classifier", ()) if isinstance(stated, Mapping) else ()
    return (named,) if isinstance(named, str) else tuple(named or ())


def _name_list(names: tuple[str, ...], what: str) -> str:
    if not names:
        return f"0 {what}"
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    return f"{len(names)} {what} ({shown}{', ...' * (len(names) > _SHOWN)})"


def load_weights(
    module: nn.Module,
    weights: str | os.PathLike | Mapping[str, Tensor],
    partial: bool = False,
    prefix: str | None = None,
) -> Match:
    """Set the weights of a network from a file or a state dict of ours or of another library.

    The names may be the network's own or, for a `ResNet` or a `ViT`, those of timm, torchvision or
    transformers, after any prefix (`module.`, `backbone.`, `encoder.`, `teacher.backbone.`). A
    classification head is left out. Positional embeddings of another image size are interpolated.

    Args:
        module: the network; changed in place, or not at all if an error is raised.
        weights: a file that `load_foreign` reads, or tensors by name.
        partial: take what fits and leave the rest as it was initialised. The first convolution is
            then adapted to another number of channels: summed for one channel, else repeated and
            scaled so that its response keeps its size. Positions of a class token are left out
            where the network has none.
        prefix: in front of the names; None finds it.

    Example:
        >>> net = nn.Linear(2, 3)
        >>> print(load_weights(net, {f"backbone.{k}": v for k, v in net.state_dict().items()}))
        2 tensors fit, 0 missing, 0 left over, 0 of another shape
    """
    given = weights if isinstance(weights, Mapping) else load_foreign(weights)
    source = "the state dict" if isinstance(weights, Mapping) else f"`{os.fspath(weights)}`"
    ours = module.state_dict()
    scheme, prefix = _best(module, given, prefix, source)
    inside = {name.removeprefix(prefix): t for name, t in given.items() if name.startswith(prefix)}
    values: dict[str, Tensor] = {}
    used: set[str] = set()
    missing, other_shape, resized = [], [], []
    for name, theirs in scheme.items():
        if not all(part in inside for part in theirs):
            if not name.endswith(_COUNTERS):
                missing.append(name)
            continue
        used.update(theirs)
        tensor = inside[theirs[0]] if len(theirs) == 1 else torch.cat([inside[t] for t in theirs])
        fitted = _fitted(name, tensor, ours[name], partial, first=name == _first(module))
        if fitted is None:
            other_shape.append(name)
            continue
        if fitted is not tensor:
            resized.append(name)
        values[name] = fitted
    rest = [name for name in inside if name not in used and not name.endswith(_COUNTERS)]
    heads = (*HEADS, *_named_heads(module))
    head = [name for name in rest if any(name.startswith(f"{h}.") for h in heads)]
    match = Match(
        loaded=tuple(values),
        missing=tuple(missing),
        left_over=tuple(name for name in rest if name not in head),
        other_shape=tuple(other_shape),
        head=tuple(head),
        resized=tuple(resized),
        prefix=prefix,
        outside=len(given) - len(inside),
    )
    accept(module, match, source, partial, lambda: _shapes(other_shape, scheme, inside, ours))
    module.load_state_dict({**ours, **values})
    return match


def accept(
    module: nn.Module,
    match: Match,
    source: str,
    partial: bool,
    shapes: Callable[[], str] = lambda: "",
) -> None:
    """Raise an error with the counts of a match, unless it is complete or accepted in part.

    Args:
        module: the network.
        match: of its tensors with those of a file.
        source: the file, for the message.
        partial: whether a match in part is accepted.
        shapes: says of tensors of another shape how they differ.
    """
    need(
        bool(match.loaded) and (partial or match.complete),
        lambda: (
            f"`{type(module).__name__}` needs its {len(module.state_dict())} tensors from "
            f"{source}: {match}.{shapes()}"
            + (" `partial=true` takes those that fit." * (bool(match.loaded) and not partial))
        ),
    )


def tensors_of(module: nn.Module, weights: str | os.PathLike) -> tuple[dict[str, Tensor], str, int]:
    """Return the tensors of a file that belong to a network, without the prefix of their names.

    Args:
        module: the network.
        weights: a file that `load_foreign` reads.

    Returns:
        tensors by name, the prefix, and how many tensors there are outside of it.
    """
    given = load_foreign(weights)
    _, prefix = _best(module, given, None, f"`{os.fspath(weights)}`")
    inside = {name.removeprefix(prefix): t for name, t in given.items() if name.startswith(prefix)}
    return inside, prefix, len(given) - len(inside)


def from_weights(
    model: Model, weights: str, partial: bool = False, prefix: str | None = None
) -> Model:
    """Return a model with the weights of a file, as `load_weights` sets them.

    For the settings of a training: `from_weights(ViT(size=224, patch=16), 'vit.safetensors')`.

    Args:
        model: with fresh weights.
        weights, partial, prefix: as for `load_weights`.
    """
    need(
        isinstance(model, Model),
        lambda: f"`from_weights(model)` needs a model; received `{type(model).__name__}`.",
    )
    if unread() is None:
        model.fitted = str(load_weights(model, weights, partial, prefix))
    model.pretrained = True
    written: dict[str, Any] = {"partial": partial or None, "prefix": prefix}
    more = "".join(f", {k}={v!r}" for k, v in written.items() if v is not None)
    model.origin = f"from_weights({model!r}, {os.fspath(weights)!r}{more})"
    return model


# ---- names ----


def _best(
    module: nn.Module, given: Mapping[str, Tensor], prefix: str | None, source: str
) -> tuple[dict[str, tuple[str, ...]], str]:
    """Return the naming and the prefix under which most tensors are in the file."""
    scores: dict[tuple[int, str], int] = {}
    schemes = naming_schemes(module)
    for at, scheme in enumerate(schemes):
        wanted = {name for theirs in scheme.values() for name in theirs}
        for start, count in _prefixes(given, wanted).items():
            if prefix is None or start == prefix:
                scores[at, start] = count
    if not scores:
        shown = ", ".join(f"`{name}`" for name in list(given)[:_SHOWN])
        raise InputError(
            f"`{type(module).__name__}` finds none of its {len(schemes[0])} tensors in {source}, "
            f"which has {len(given)}: {shown}"
            + (f", under the prefix `{prefix}`." if prefix is not None else ", ....")
        )
    most = max(scores.values())
    best = [key for key, count in scores.items() if count == most]
    prefixes = list(dict.fromkeys(start for _, start in best))
    chosen = prefixes[0] if len(prefixes) == 1 or "" in prefixes else _preferred(prefixes)
    chosen = "" if "" in prefixes else chosen
    need(
        chosen is not None,
        lambda: (
            f"`{type(module).__name__}` needs one network in {source}; {len(prefixes)} fit alike: "
            f"{', '.join(f'`{p}`' for p in sorted(prefixes)[:6])}. Choose with `prefix=`."
        ),
    )
    return next((schemes[at], start) for at, start in best if start == chosen)


def _prefixes(given: Mapping[str, Tensor], wanted: set[str]) -> Counter[str]:
    """Return how many wanted names there are after each prefix that ends in a dot, or is empty."""
    counts: Counter[str] = Counter()
    for name in given:
        at = 0
        while True:
            if name[at:] in wanted:
                counts[name[:at]] += 1
            at = name.find(".", at) + 1
            if not at:
                break
    return counts


def _preferred(prefixes: list[str]) -> str | None:
    for word in _PREFERRED:
        chosen = [prefix for prefix in prefixes if word in prefix]
        if len(chosen) == 1:
            return chosen[0]
    return None


# ---- shapes ----


def _fitted(name: str, tensor: Tensor, like: Tensor, partial: bool, first: bool) -> Tensor | None:
    if tensor.shape == like.shape:
        return tensor
    if name.rpartition(".")[2] in _POSITIONS:
        return _positions(tensor, like.shape, partial)
    if partial and first:
        return _channels(tensor, like.shape)
    return None


def _positions(tensor: Tensor, shape: torch.Size, partial: bool) -> Tensor | None:
    """Positional embeddings of a square grid, and of at most two tokens in front, resampled; in
    part, those of the grid alone.
    """
    if tensor.ndim != 3 or len(shape) != 3 or tensor.shape[::2] != shape[::2]:
        return None
    for front in (0, 1, 2):
        kept = front
        old, new = math.isqrt(tensor.shape[1] - front), math.isqrt(shape[1] - front)
        if partial and math.isqrt(shape[1]) ** 2 == shape[1]:  # a network without such tokens
            kept, new = 0, math.isqrt(shape[1])
        if old**2 + front == tensor.shape[1] and new**2 + kept == shape[1] and old and new:
            return resampled(tensor[:, front - kept :], (new, new), kept)
    return None


def _channels(weight: Tensor, shape: torch.Size) -> Tensor | None:
    """Return a convolution for other channels: summed for one, else repeated and scaled."""
    if weight.ndim != 4 or len(shape) != 4:
        return None
    if (weight.shape[0], *weight.shape[2:]) != (shape[0], *shape[2:]):
        return None
    old, new = weight.shape[1], shape[1]
    if new == 1:
        return weight.sum(1, keepdim=True)
    return weight.repeat(1, -(-new // old), 1, 1)[:, :new] * (old / new)


def _first(module: nn.Module) -> str:
    """Return the name of the first convolution's weight."""
    convolutions = (n for n, part in module.named_modules() if isinstance(part, nn.Conv2d))
    return f"{next(convolutions, '')}.weight".lstrip(".")


def _shapes(
    names: list[str], scheme: dict[str, tuple[str, ...]], inside: dict[str, Tensor], ours: dict
) -> str:
    if not names:
        return ""
    theirs = [tuple(inside[part].shape) for part in scheme[names[0]]]
    return f" `{names[0]}` is {tuple(ours[names[0]].shape)} here and {theirs[0]} there."
