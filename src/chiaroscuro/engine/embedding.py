"""`embed`: embeddings of data by trained networks, with all that is known of the rows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.data import SECOND, Dataset, open_data
from chiaroscuro.engine.batches import ViewPair, as_view, plain, text_tokens
from chiaroscuro.engine.distributed import gather_rows, opened_by_ranks, rank, world_size
from chiaroscuro.engine.networks import Networks, evaluating, taking
from chiaroscuro.engine.opening import OpenRun, open_run
from chiaroscuro.engine.records import between, one_of
from chiaroscuro.engine.settings import ViewSettings
from chiaroscuro.engine.state import device_of
from chiaroscuro.engine.stream import copies_pinned, prefetched
from chiaroscuro.errors import need
from chiaroscuro.views import LabelledContext, View

__all__ = [
    "Passing",
    "as_views",
    "embed",
    "embed_run",
    "embedder",
    "half_type",
    "load_networks",
    "opened_for",
    "pass_through",
    "passing_of",
    "stretch",
]

T = TypeVar("T")
BATCH = 256
THUMBNAIL = 32
"""Pixels of a side; smaller images keep their own."""


def embed(
    subject: Any,
    data: Any = None,
    side: int = 0,
    template: str = "{}",
    views: Any = None,
    *,
    encoder: Any = None,
    second_encoder: Any = None,
    projector: Any = None,
    predictor: Any = None,
    objective: Any = None,
    view: Any = None,
    second_view: Any = None,
    passing: Passing | None = None,
) -> Embeddings:
    """Embed a dataset, and return the embeddings with the labels, ids and other fields of its rows.

    The result holds `h`, and `z` if there is a projector; labels, class names, factors, split and
    ids if the data have them; thumbnails of images and `layer_input` of arrays. For a run it also
    holds `layer_untrained`, the representations of the untrained network, as a baseline for
    evaluation; and `about`, which describes the training data: the part, the number of rows of each
    side of the split, whether labels were used. Networks run in evaluation mode and are left
    unchanged. Samples are preprocessed without randomness (`View.plain`): images are resized
    bilinearly and normalised as in training.

    For images with texts and two networks it holds both sides of each pair: `z1` and `z2` are the
    projections of the image and of its first text, `layer_texts` the representation of the text,
    `layer_untrained_z1` and `layer_untrained_z2` the baseline. If the classes have names, `prompts`
    holds the template filled with each name and `prompt_z` their projections, for zero-shot
    classification. Prepared pairs with two networks are embedded the same way, with the second side
    in `layer_second`.

    Args:
        subject: a run (a `Run`, its folder, an `OpenRun`), `Networks`, or any module that maps
            samples to (n, d).
        data: anything that `open_data` accepts; None is the data of the run, both sides of the
            split.
        side: 1 returns h and z of the second network of a pair, such as that for texts.
        template: text of a class, with `{}` for its name. The default is the name alone; CLIP's is
            "A photo of a {}." [radford2021clip, Sec. 3.1.4].
        views: views that the networks or the module were trained with: `ViewSettings`, a view, or
            two. A run uses those of its settings. None leaves samples unchanged.
        encoder, second_encoder, projector, predictor, view, second_view: objects that the run was
            trained with, if it cannot rebuild them from its settings.
        objective: likewise; embeddings do not need it.
        passing: device, precision, workers and ranks. A run uses an accelerator if there is one; a
            module stays on its device.

    Example:
        >>> from chiaroscuro.models import MLP
        >>> embed(MLP(d_in=3, d=2), {"x": np.eye(3, dtype=np.float32), "labels": np.arange(3)})
        Embeddings(h=(3, 2) float32, labels=(3,) int64, ..., layer_input=(3, 3) float32)
    """
    need(
        template.count("{}") == 1,
        lambda: f"`embed(template)` needs `{{}}` once, for the class; received `{template}`.",
    )
    if isinstance(subject, str | os.PathLike | Run | OpenRun):
        run = open_run(
            subject,
            encoder=encoder,
            second_encoder=second_encoder,
            projector=projector,
            predictor=predictor,
            objective=objective,
            view=view,
            second_view=second_view,
        )
        own = data is None or _is_source(data, run)
        table = opened_for(passing, lambda: run.data if own else run.as_trained(open_data(data)))
        return embed_run(run, table, own, side, template, passing)
    need(data is not None, "`embed(model, data)` needs data; received None.")
    table = open_data(data)
    about = {"skipped": table.skipped_summary()} if table.skipped else None
    return _embeddings(subject, None, table, as_views(views), side, template, about, passing)


def embed_run(
    run: OpenRun,
    data: Dataset,
    own: bool = True,
    side: int = 0,
    template: str = "{}",
    passing: Passing | None = None,
) -> Embeddings:
    """Embed samples by the networks of an open run, trained and untrained.

    Args:
        run: of which the networks are taken.
        data: the samples.
        own: whether they are those of the run, so that rows trained on are counted.
        side, template, passing: as for `embed`.
    """
    passing = passing_of(run, passing)
    about = _about(run, own)
    if data.skipped:
        about["skipped"] = data.skipped_summary()
    return _embeddings(run.networks, run.untrained, data, run.views, side, template, about, passing)


def _is_source(data: Any, run: OpenRun) -> bool:
    """Return whether these are the data that a run was trained on, by name or in memory."""
    if isinstance(data, str):
        return data.strip() == run.settings.data.source.strip()
    return data is run.ingredients.data and data is not None


def _embeddings(
    networks: nn.Module,
    before: Networks | None,
    data: Dataset,
    views: ViewPair,
    side: int,
    template: str,
    about: dict[str, str] | None,
    passing: Passing | None,
) -> Embeddings:
    known, layers = _descriptions(data), _input(data)
    both = _two_sided(networks, data)
    through = partial(pass_through, data=data, views=views, passing=passing)
    sides = {s: through(networks, side=s) for s in ((0, 1) if both else (side,))}
    start = {s: through(before, side=s) for s in sides} if before is not None else {}
    if start:
        layers["untrained"] = start[side][0]
    if both:
        layers["second" if SECOND in data.inputs else "texts"] = sides[1][0]
        known |= {f"z{s + 1}": z for s, (_, z) in sides.items()}
        layers |= {f"untrained_z{s + 1}": z for s, (_, z) in start.items() if z is not None}
        if SECOND not in data.inputs:
            known |= _prompted(data, known.get("class_names"), template, networks, before)
    h, z = sides[side]
    return Embeddings(h=h, z=z, layers=layers, about=about, **known)


def as_views(views: Any) -> ViewPair:
    """Return the views of the two sides: of settings, of one view for both, or of two."""
    if isinstance(views, ViewSettings):
        return views.objects()
    if isinstance(views, tuple):
        return as_view(views[0]), as_view(views[1])
    return as_view(views), as_view(views)


def load_networks(run: Run | str | os.PathLike) -> Networks:
    """Return the networks of a run's newest good checkpoint, in evaluation mode.

    Those are the averaged ones where it keeps an average.

    Args:
        run: a run that has saved at least once, or its folder.
    """
    return open_run(run).networks


# ---- going through ----


@dataclass(frozen=True)
class Passing:
    """How to embed: device, precision and workers.

    Args:
        device: device; "auto" is an accelerator if there is one, or the CPU.
        precision: "full", "bfloat16" or "float16" by autocast, on an accelerator; None uses that of
            the run, and "full" for modules. A CPU always computes in full precision.
        workers: number of processes that read samples ahead; 0 reads in this process.
        spread: whether the ranks share the work, each a range of the rows. All ranks must call
            then, and all receive the whole result.
    """

    device: str = "auto"
    precision: str | None = None
    workers: int = 0
    spread: bool = False

    def __post_init__(self) -> None:
        one_of("precision", self.precision or "full", ("full", "bfloat16", "float16"))
        between("workers", self.workers, 0, 1024)


def passing_of(run: OpenRun, passing: Passing | None) -> Passing:
    """Return how samples go through the networks of a run: in its precision, unless told.

    Args:
        run: an open one.
        passing: what is asked for, if anything.
    """
    passing = passing or Passing()
    precision = passing.precision or run.settings.precision
    return replace(passing, precision=precision)


def opened_for(passing: Passing | None, work: Callable[[], T]) -> T:
    """Return what `work()` opens; where ranks share the work, they share its shards as well."""
    return opened_by_ranks(work) if passing is not None and passing.spread else work()


@contextlib.contextmanager
def embedder(
    networks: nn.Module, data: Dataset, side: int, views: ViewPair, passing: Passing | None
) -> Iterator[Callable[[range], Iterator[tuple[Tensor, Tensor | None]]]]:
    """Yield what embeds batches of rows by their number: h, and z where there is a projector.

    Batch b is rows 256 b to 256 (b + 1). Inside, networks are in evaluation mode and on the device;
    afterwards they are as they were.

    Args:
        networks: `Networks`, or any module.
        data: the samples.
        side: side of a pair.
        views: that the networks were trained on.
        passing: None leaves networks where they are, and reads without workers.
    """
    home = next((p.device for p in networks.parameters()), torch.device("cpu"))
    device = home if passing is None else device_of(passing.device)
    half = half_type(passing, device)
    samples, ours = _Plain(data, side, views[side]), isinstance(networks, Networks)
    encoder = networks
    if isinstance(networks, Networks) and len(networks.encoders) == 1:
        encoder = networks.encoders[0]  # named in messages

    def embedded(batches: range) -> Iterator[tuple[Tensor, Tensor | None]]:
        workers = 0 if passing is None else passing.workers
        stream = (
            prefetched(samples, batches, workers, 0.0, copies_pinned(device))
            if workers
            else map(samples.__getitem__, batches)
        )
        for x in stream:
            with torch.no_grad(), torch.autocast(device.type, half, enabled=half is not None):
                x = x.to(device, non_blocking=True)
                with taking(encoder, x):
                    h = networks.encode(x, side) if ours else networks(x)  # type: ignore[operator]
                need(
                    isinstance(h, Tensor) and h.ndim == 2 and len(h) == len(x),
                    lambda x=x: (
                        f"`embed(model, data)` needs a model that gives a matrix ({len(x)}, d) for "
                        f"{len(x)} samples."
                    ),
                )
                z = networks.project(h, side) if ours else None  # type: ignore[operator]
            yield h.float().cpu(), None if z is None else z.float().cpu()

    with evaluating(networks):
        moved = device != home
        if moved:
            networks.to(device)
        try:
            yield embedded
        finally:
            if moved:
                networks.to(home)


def half_type(passing: Passing | None, device: torch.device) -> torch.dtype | None:
    """Return the type that autocast computes in, or None: on a CPU, and in full precision."""
    asked = "full" if passing is None or device.type == "cpu" else passing.precision or "full"
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(asked)


@dataclass(frozen=True, eq=False)
class _Plain(TorchDataset):
    """Batches of samples with nothing random, as a network takes them."""

    data: Dataset
    side: int
    view: View | None

    def __getitem__(self, batch: int) -> Tensor:
        rows = np.arange(batch * BATCH, min((batch + 1) * BATCH, len(self.data)))
        return plain(self.data, rows, self.side, self.view)


def pass_through(
    networks: nn.Module,
    data: Dataset,
    side: int,
    views: ViewPair,
    passing: Passing | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return h and, where there is a projector, z of every row.

    Args:
        networks: `Networks`, or any module.
        data: the samples.
        side: side of a pair.
        views: that the networks were trained on.
        passing: how; None leaves networks where they are.
    """
    need(len(data) > 0, lambda: f"`embed` needs at least 1 sample; `{data.name}` has 0.")
    mine, ranks = stretch(len(data), passing)
    with embedder(networks, data, side, views, passing) as embedded:
        parts = list(embedded(mine or range(1)))
    hs, zs = [h for h, _ in parts], [z for _, z in parts if z is not None]
    h, z = torch.cat(hs), torch.cat(zs) if zs else None
    if ranks > 1:
        keep = slice(None) if mine else slice(0)
        h, z = gather_rows(h[keep]), None if z is None else gather_rows(z[keep])
    return h.numpy(), None if z is None else z.numpy()


def stretch(n: int, passing: Passing | None) -> tuple[range, int]:
    """Return the batches of n rows that this rank embeds, and among how many ranks."""
    batches = -(-n // BATCH)
    ranks, me = (world_size(), rank()) if passing is not None and passing.spread else (1, 0)
    return range(batches * me // ranks, batches * (me + 1) // ranks), ranks


def _two_sided(networks: nn.Module, data: Dataset) -> bool:
    """Return whether images and their texts, or two sides of ready pairs, go through a network
    each.
    """
    columns = set(data.inputs)
    two = isinstance(networks, Networks) and len(networks.encoders) > 1
    texts = "images" in columns and bool(columns & {"texts", "captions"})
    return two and (texts or SECOND in columns)


def _prompted(
    data: Dataset, names: np.ndarray | None, template: str, networks: Any, before: Any
) -> dict[str, np.ndarray]:
    """Return what the text encoders make of the template, filled with each class name."""
    if names is None:
        return {}
    prompts = [template.replace("{}", str(name)) for name in names]
    arrays = {"prompts": np.array(prompts)}
    x = text_tokens(data, prompts)
    for key, texts in (("prompt_z", networks), ("untrained_prompt_z", before)):
        if texts is not None:
            device = next(texts.parameters()).device
            with evaluating(texts), torch.no_grad():
                z = texts.project(texts.encode(x.to(device), 1), 1)
            arrays[key] = z.float().cpu().numpy()
    return arrays


# ---- what is known of the training and of the rows ----


def _about(run: OpenRun, own: bool) -> dict[str, str]:
    """Return what a run was trained on, for evaluations; `own` data have their rows counted."""
    settings = run.settings
    labels = run.sees_labels or any(isinstance(view, LabelledContext) for view in run.views)
    facts = {
        "trained_on.source": settings.data.source,
        "trained_on.part": settings.data.part,
        "trained_on.labels": "seen" if labels else "not seen",
    }
    if own:
        seen = run.training_data
        facts["trained_on.rows"] = str(len(seen))
        if seen.split is not None:
            facts["trained_on.test_rows"] = str(int((seen.split == 1).sum()))
    pretrained = any(getattr(encoder, "pretrained", False) for encoder in run.untrained.encoders)
    facts["untrained"] = f"before training ({'pretrained' if pretrained else 'fresh weights'})"
    return facts


def _descriptions(data: Dataset) -> dict[str, Any]:
    known: dict[str, Any] = {name: data.columns.get(name) for name in _DESCRIPTIONS}
    arrays = {name: data.column(name) for name, column in known.items() if column is not None}
    arrays["ids"] = data.ids if data.ids.dtype.kind in "iuU" else data.ids.astype(str)
    if data.class_names and "labels" in arrays:
        arrays["class_names"] = np.array(data.class_names)
    if data.factor_names and "factors" in arrays:
        arrays["factor_names"] = np.array(data.factor_names)
    if "texts" in data.inputs:
        arrays["texts"] = np.array([str(text) for text in data.column("texts")])
    if "images" in data.inputs:
        arrays["thumbnails"] = _thumbnails(data)
    return arrays


_DESCRIPTIONS = ("labels", "coarse_labels", "factors", "split")


def _thumbnails(data: Dataset) -> np.ndarray:
    out = []
    for start in range(0, len(data), BATCH):
        rows = np.arange(start, min(start + BATCH, len(data)))
        images = data[rows]["images"]
        if images.dtype == object:  # of several sizes
            side = min(THUMBNAIL, max(max(image.shape[:2]) for image in images))
            out += [_thumbnails_of(np.array(image)[None], side) for image in images]
        else:
            out.append(_thumbnails_of(images, min(THUMBNAIL, max(images.shape[1:3]))))
    most = max(part.shape[1] for part in out)
    return np.concatenate([_thumbnails_of(part, most) for part in out])


def _thumbnails_of(images: np.ndarray, side: int) -> np.ndarray:
    x = torch.from_numpy(_as_rgb(images)).permute(0, 3, 1, 2)
    if tuple(x.shape[2:]) != (side, side):
        x = F.interpolate(x.float(), (side, side), mode="area").round_().to(torch.uint8)
    return x.permute(0, 2, 3, 1).numpy()


def _as_rgb(images: np.ndarray) -> np.ndarray:
    """Return images of any channels and numbers as they are shown: three channels of uint8.

    Of fewer than three channels the first is shown in grey, of more the first three. Floats are
    taken from 0 to 1, or else each image from its least to its largest value.
    """
    if images.dtype == np.uint16:
        images = images // 257
    elif images.dtype != np.uint8:
        images = images.astype(np.float64)
        if images.size and not 0 <= images.min() <= images.max() <= 1:
            low, high = (f(images, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
            images = (images - low) / np.where(high > low, high - low, 1)
        images = np.rint(255 * images)
    images = images[..., :3] if images.shape[-1] >= 3 else images[..., :1].repeat(3, axis=-1)
    return np.ascontiguousarray(images.astype(np.uint8, copy=False))


def _input(data: Dataset) -> dict[str, np.ndarray]:
    if "images" in data.inputs or "x" not in data.inputs:
        return {}
    x = data.column("x")
    numbers = x.dtype.kind in "fiu" and x.ndim >= 2
    return {"input": x.reshape(len(x), -1)} if numbers else {}
