"""From rows of a dataset to the tensors a network takes, with and without a view."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chiaroscuro.data import NEGATIVES, SECOND, Dataset, Tokenizer, holds_files, open_data
from chiaroscuro.engine.sample_transform import SampleTransform, ViewPair, as_view
from chiaroscuro.engine.settings import Settings
from chiaroscuro.errors import InputError, need
from chiaroscuro.views import (
    LabelledContext,
    MultiCrop,
    Rewrites,
    SimCLR,
    TokenSplit,
    Unfinished,
    View,
)

__all__ = [
    "Pairs",
    "ViewPair",
    "as_view",
    "open_training_data",
    "plain",
    "spaced",
    "text_tokens",
    "tokens",
    "training_part",
    "with_tokenizer",
]


def tokens(texts: list[str], length: int = 96) -> Tensor:
    """Encode texts as bytes: a start token, then each UTF-8 byte plus 1, then zeros.

    Args:
        texts: any strings.
        length: tokens of the longest text that is kept whole; the rest is cut.

    Example:
        >>> tokens(["a", "ab"])
        tensor([[257,  98,   0],
                [257,  98,  99]])
    """
    return torch.from_numpy(Tokenizer(length=length)(texts))


def with_tokenizer(settings: Settings, data: Dataset) -> Dataset:
    """Return the data with their texts read as the settings say.

    Args:
        settings: whose `data.tokenizer` and `data.text_length` count.
        data: any samples; without texts they stay as they are.
    """
    asked = settings.data.tokenizer, settings.data.text_length
    if not set(data.inputs) & {*_TEXTS, SECOND} or asked == ("", 96):
        return data
    now = data.tokenizer
    if now is not None and asked == (now.source, now.length):
        return data
    return dataclasses.replace(data, tokenizer=Tokenizer(*asked))


def text_tokens(data: Dataset, texts: list[str]) -> Tensor:
    """Return texts as the tokens (n, t) that networks trained on the data take."""
    return tokens(texts) if data.tokenizer is None else torch.from_numpy(data.tokenizer(texts))


def open_training_data(settings: Settings) -> Dataset:
    """Return the samples that the settings train on."""
    return training_part(settings, open_data(settings.data.source))


def training_part(settings: Settings, data: Dataset) -> Dataset:
    """Return those of the samples that the settings train on.

    Args:
        settings: whose `data` say which part.
        data: all samples of their source.
    """
    if settings.data.part != "all" and data.split is not None:
        data = data.part(settings.data.part)
    need(len(data) > 0, lambda: f"`{settings.data.source}` has 0 samples to train on.")
    data = with_tokenizer(settings, data)
    return data.one_per_group() if settings.data.distinct else data


def spaced(data: Dataset, n: int) -> Dataset:
    """Return at most n of the rows, evenly spaced, including the first and the last.

    Args:
        data: the samples.
        n: all of them where there are fewer.

    Example:
        >>> spaced(open_data({"x": np.arange(7)}), 3).column("x")
        array([0, 3, 6])
    """
    return data.take(np.linspace(0, len(data) - 1, min(n, len(data))).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Positive pairs of a dataset: a pure function of (seed, epoch, row, view).

    Args:
        data: the samples.
        first, second: the views of the two sides; None leaves a sample as it is.
        fresh: whether the data draw each side anew.
        seed: seed of the views.
        separate: whether the second side is the text of an image.
    """

    data: Dataset
    first: View | None
    second: View | None
    fresh: bool = False
    seed: int = 0
    separate: bool = False

    @classmethod
    def of(cls, settings: Settings, data: Dataset, views: ViewPair | None = None) -> Pairs:
        """Return the pairs that the settings ask for; `views` in the place of their texts."""
        first, second = settings.views.objects() if views is None else views
        names = set(data.inputs)
        separate = bool(settings.network.second_encoder) and "images" in names
        separate = separate and bool(names & {"texts", "captions"})
        need(
            not settings.views.fresh or data.source is not None,
            lambda: f"`views.fresh` needs data that can draw views; `{data.name}` is a record.",
        )
        return cls(data, first, second, settings.views.fresh, settings.seed, separate)

    def __call__(self, indices: NDArray[np.int64], epoch: int) -> tuple[Tensor, Tensor]:
        """Return the two views of these samples, row by row."""
        if self.fresh:
            draw = lambda view: self.data.draw(indices, seed=self.seed, epoch=epoch, view=view)
            batches = [draw(0), draw(1)]
        else:
            batches = [self.data[indices]] * 2
        x1, x2 = (self._view(batch, epoch, side)[0] for side, batch in enumerate(batches))
        return x1, x2

    def can_wait(self) -> bool:
        """Return whether the views of these data can be made on a device: SimCLR's, of images in
        uint8."""
        column = self.data.columns.get("images")
        plain = column is not None and column[np.arange(0)].dtype == np.uint8
        plain = plain and not getattr(column, "mixed", False)
        ready = {SECOND, NEGATIVES} & set(self.data.columns)
        plain = plain and not (ready or self.fresh or self.separate)
        return plain and self._policies() is not None

    def _policies(self) -> list[SimCLR] | None:
        """Return the policy of every view, first to last; None where one is none."""
        first: list[View | None] = [self.first]
        second = self.second
        if isinstance(self.first, MultiCrop):
            first = [self.first.member(crop) for crop in range(self.first.n_crops) if crop != 1]
        if isinstance(second, MultiCrop):
            second = second.member(1)
        views = [first[0], second, *first[1:]]
        policies = [view for view in views if isinstance(view, SimCLR)]
        return policies if len(policies) == len(views) else None

    def unfinished(self, indices: NDArray[np.int64], epoch: int) -> Unfinished:
        """Return the samples in uint8, with what their views are made of; where they can wait."""
        batch = self.data[indices]
        images = _raw(self.data, batch, self.data.inputs, False, None)
        recipes = []
        for number, policy in enumerate(self._policies() or ()):
            draws = policy.draws(batch["row"], self.seed, epoch, number)
            recipes.append((policy, policy.sample(tuple(images.shape[2:]), draws)))
        return Unfinished(images, tuple(recipes))

    def side(self, indices: NDArray[np.int64], epoch: int, side: int = 0) -> Tensor:
        """Return one view of these samples, row by row: that of a side."""
        if self.fresh:
            batch = self.data.draw(indices, seed=self.seed, epoch=epoch, view=side)
        else:
            batch = self.data[indices]
        return self._view(batch, epoch, side)[0]

    def crops(self, indices: NDArray[np.int64], epoch: int) -> list[Tensor]:
        """Return the further views of these samples, beyond the first two: those of `MultiCrop`."""
        if not isinstance(self.first, MultiCrop):
            return []
        shared = None if self.fresh else self.data[indices]
        made = []
        for crop in range(2, self.first.n_crops):
            batch = shared or self.data.draw(indices, seed=self.seed, epoch=epoch, view=crop)
            made.append(self._view(batch, epoch, 0, crop)[0])
        return made

    def negatives(self, indices: NDArray[np.int64], epoch: int) -> Tensor | None:
        """Return the hard negatives of these samples, k rows for each; None where there are none.

        They are seen through the view of the second side, each with a chance of its own.
        """
        if NEGATIVES not in self.data.columns:
            return None
        batch = self.data[indices]
        values, row = batch[NEGATIVES], batch["row"]
        made = []
        for place in range(values.shape[1]):
            one = {SECOND: np.ascontiguousarray(values[:, place]), "row": row}
            x = _raw(self.data, one, (SECOND,), False, self.second, side=1)
            if self.second is not None:
                x = self.second(x, row, self.seed, epoch, 2 + place)[0]
            made.append(x)
        if isinstance(made[0], list):
            joined: Any = [text for texts in zip(*made, strict=True) for text in texts]
            return _ready(self.data, joined)
        wide = max(x.shape[1] for x in made)
        if made[0].ndim == 2 and any(x.shape[1] < wide for x in made):  # tokens of other lengths
            made = [torch.nn.functional.pad(x, (0, wide - x.shape[1])) for x in made]
        stacked = torch.stack(made, dim=1)
        return _ready(self.data, stacked.flatten(0, 1))

    def parameters(self, indices: NDArray[np.int64], epoch: int) -> tuple[NDArray[Any], ...] | None:
        """Return what made the two views of these samples, as structured arrays; None where nothing
        is recorded, or the two sides are made in two ways.

        Where the data draw a sample anew, its factors are what made it.
        """
        if self.fresh:
            batches = [
                self.data.draw(indices, seed=self.seed, epoch=epoch, view=side) for side in (0, 1)
            ]
        else:
            batches = [self.data[indices]] * 2
        per_view = []
        for side, batch in enumerate(batches):
            columns: dict[str, NDArray[Any]] = {}
            if self.fresh and "factors" in batch:
                names = self.data.factor_names or map(str, range(batch["factors"].shape[1]))
                columns |= dict(zip(names, batch["factors"].T, strict=True))
            omega = self._view(batch, epoch, side)[1]
            if omega is not None:
                columns |= {name: omega[name] for name in omega.dtype.names or ()}
            per_view.append(_numbers(columns, len(indices)))
        one, two = per_view
        return (one, two) if one.dtype.names and one.dtype == two.dtype else None

    def _view(
        self, batch: dict[str, NDArray[Any]], epoch: int, side: int, number: int | None = None
    ) -> tuple[Tensor, NDArray[Any] | None]:
        """Return a view of one side, by default that of the side's own number."""
        view = self.second if side else self.first
        x = _raw(self.data, batch, self.data.inputs, self.separate and side == 1, view, side)
        images = _is_mixed(x) or (isinstance(x, Tensor) and x.ndim == 4)
        if isinstance(view, SampleTransform) and images and holds_files(self.data):
            x = _as_pillow(x)
        if isinstance(view, LabelledContext):
            need(
                "labels" in self.data.columns,
                lambda: f"`LabelledContext` needs labels; `{self.data.name}` has none.",
            )
            x = x, self.data.columns["labels"][batch["row"]]
        omega = None
        if view is not None:
            x, omega = view(x, batch["row"], self.seed, epoch, side if number is None else number)
        return _ready(self.data, x), omega


def _numbers(columns: dict[str, NDArray[Any]], n: int) -> NDArray[Any]:
    """Return those of the columns that are numbers, or records, as one structured array."""
    kept = {name: x for name, x in columns.items() if x.dtype.kind in "biufV"}
    out = np.zeros(n, dtype=[(name, x.dtype, x.shape[1:]) for name, x in kept.items()])
    for name, x in kept.items():
        out[name] = x
    return out


def plain(
    data: Dataset, indices: NDArray[np.int64], side: int = 0, view: View | None = None
) -> Tensor:
    """Return samples without augmentation, as the network of a view expects them.

    Args:
        data: the samples.
        indices: which of them.
        side: 1 for the text of an image, or the second of a ready pair.
        view: of that side in training; its `plain` gives samples the size and the normalisation
            that the network knows. A `TokenSplit` gives its side of one fixed split. None leaves
            them.
    """
    texts = side == 1 and bool(set(data.inputs) & {"texts", "captions"})
    batch = data[indices]
    x = _raw(data, batch, data.inputs, texts, None, side)
    if _is_mixed(x) and view is not None:
        return _ready(data, view.plain([one.float() / 255 for one in x]))
    x = _ready(data, x)
    if isinstance(view, TokenSplit):  # its sides take symbols or contexts, never whole sequences
        return view(x, batch["row"], view=side)[0]
    return x if view is None else view.plain(x)


def _raw(
    data: Dataset,
    batch: dict[str, NDArray[Any]],
    inputs: tuple[str, ...],
    texts: bool,
    view: View | None,
    side: int = 0,
) -> Any:
    """Return the column that is looked at, as the views take it."""
    if side == 1 and SECOND in inputs:  # pairs that came ready
        name = "texts" if batch[SECOND].dtype.kind in "OU" else "x"
        return _raw(data, {name: batch[SECOND]}, (name,), False, view)
    inputs = tuple(name for name in inputs if name != SECOND)
    if "images" in inputs and not texts:
        if batch["images"].dtype == object:  # of several sizes
            return [torch.from_numpy(np.array(x)).permute(2, 0, 1) for x in batch["images"]]
        images = torch.from_numpy(np.ascontiguousarray(batch["images"]))
        return images.permute(0, 3, 1, 2).contiguous()
    strings = "texts" in inputs and (texts or len(inputs) == 1)
    if isinstance(view, SampleTransform) and strings:
        return [str(text) for text in batch["texts"]]
    if isinstance(view, Rewrites) and "captions" in inputs:
        return list(batch["captions"])
    if isinstance(view, Rewrites) and strings:
        return [[str(text)] for text in batch["texts"]]
    if not texts and (column := next((c for c in inputs if c not in _TEXTS), None)):
        values = np.ascontiguousarray(batch[column])
        if values.dtype == np.uint8 and values.ndim == 4 and values.shape[-1] == 3:
            return torch.from_numpy(values).permute(0, 3, 1, 2).contiguous()
        whole = values.dtype.kind in "iu" and values.dtype != np.uint8
        return torch.from_numpy(values.astype(np.int64 if whole else np.float32))
    if "texts" in inputs:
        return text_tokens(data, [str(text) for text in batch["texts"]])
    if "captions" in inputs:
        return text_tokens(data, [texts[0] for texts in batch["captions"]])
    raise InputError(f"Training needs images, arrays or texts; the data have {inputs}.")


_TEXTS = ("texts", "captions")


def _is_mixed(x: Any) -> bool:
    """Return whether these are images of several sizes."""
    return isinstance(x, list) and bool(x) and isinstance(x[0], Tensor)


def _as_pillow(x: Any) -> list[Any]:
    from PIL import Image

    return [Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()) for image in x]


def _ready(data: Dataset, x: Any) -> Tensor:
    """Return floats for images, tokens for texts."""
    if _is_mixed(x):
        shapes = sorted({tuple(image.shape[1:]) for image in x})
        raise InputError(
            f"Images of one batch need one size; `{data.name}` has {len(shapes)} in one, from "
            f"{shapes[0]} to {shapes[-1]}. Give a view that resizes, such as `SimCLR(size=64)`, "
            "with an attribute `plain` that does so for embedding if it is a function of your own; "
            "or resize them in the dataset."
        )
    if isinstance(x, list):
        return text_tokens(data, x)
    return x.float() / 255 if x.dtype == torch.uint8 else x
