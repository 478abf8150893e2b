"""`suggest`: settings that suit some data and this machine, with the reason for each choice."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from chiaroscuro.data import Dataset, as_call, open_data
from chiaroscuro.data.pictures import EXTENSIONS
from chiaroscuro.engine.batches import Pairs, training_part, with_tokenizer
from chiaroscuro.engine.networks import build, require_vocabulary
from chiaroscuro.engine.progress import duration
from chiaroscuro.engine.read_settings import read_settings
from chiaroscuro.engine.settings import Settings
from chiaroscuro.engine.state import device_of
from chiaroscuro.errors import InputError, need

__all__ = ["MINUTES", "Suggestion", "kind_of", "suggest"]

MINUTES = 5.0
"""Time for training where none is asked for."""
TEST = 0.2
"""Share of the rows held out where the data bring no split."""
EPOCHS = 100
"""More are not suggested where no time is asked for."""
STEPS = 4
"""Steps of an epoch that the batch leaves at least."""
SIDE = 64
"""Pixels that a side of an image has at most."""
SMOOTH = 0.5
"""Correlation of neighbouring columns from which on rows are series."""
LONG = 64
"""Columns from which on a matrix may be series."""
_NOUNS = {"table": "a table", "text": "texts"} | {k: k for k in ("images", "series", "pairs")}


@dataclass(frozen=True)
class Suggestion:
    """Suggested settings for some data, with the reasons.

    Args:
        settings: complete; `chiaro train` takes them.
        kind: "images", "table", "text", "series" or "pairs".
        reasons: sentences, one for each choice.
    """

    settings: Settings
    kind: str
    reasons: tuple[str, ...]


def suggest(source: str, minutes: float | None = None, overrides: Iterable[str] = ()) -> Suggestion:
    """Return settings that suit the data and this machine, with the reasons.

    Args:
        source: a folder, a file, a name or a call, as for `open_data`.
        minutes: that training may take; a step is timed here, and the epochs follow from that.
        overrides: `key=value`, as for `--set`; what they fix is not chosen.

    Example:
        >>> suggestion = suggest("digits(size=16, renderings=(1, 1))", overrides=["epochs=1"])
        >>> suggestion.kind, suggestion.settings.batch
        ('images', 32)
    """
    need(
        minutes is None or 0 < minutes < float("inf"),
        lambda: f"`--minutes` needs a number above 0; received {minutes}.",
    )
    fixed = list(overrides)
    keys = {one.partition("=")[0].strip() for one in fixed}
    chosen = [one.partition("=")[2].strip() for one in fixed if one.startswith("data.source=")]
    call, data = _opened(chosen[-1] if chosen else source)
    kind, why = kind_of(data)
    reasons = [f"{len(data):,} samples, read as {_NOUNS[kind]}: {why}.", *_categories(data)]
    data = _with_text_settings(data, fixed)
    if data.split is None:
        call = as_call(call, test=TEST)
        data = data.with_split(TEST)
        judged = data.labels is not None or {"images", "captions"} <= set(data.inputs)
        needs = "" if judged else ", which needs labels too"
        reasons.append(
            f"{len(data.part('test')):,} samples are held out for `chiaro evaluate`{needs} "
            f"(test={TEST:g})."
        )
    else:
        reasons.append(f"The data have a split: {len(data.part('test')):,} samples are held out.")
    choices = [f"data.source={call}"]
    preset, more, said = _CHOOSE[kind](data)
    if preset != "demo":  # whose batch, warm-up and epochs suit its data
        more = [*more, f"batch={_batch(len(data.part('train')))}", "schedule.warmup=1"]
    choices += more
    theirs = any("from_transformers" in one for one in fixed if one.startswith("network.encoder"))
    if theirs and "images" not in data.inputs:
        choices.append("views.first=''")  # dropout makes the two views differ
        said = "the encoder that was asked for; views differ by its dropout"
    settings = read_settings(preset, [*choices, *fixed])
    if 0 < settings.epochs <= 1 and not keys & {"schedule.warmup"}:
        settings = read_settings(settings, ["schedule.warmup=0"])
    if "network.encoder" in keys and kind in ("images", "table", "series"):
        said = f"with the encoder that was asked for, {settings.network.encoder}"
    reasons.append(f"Preset `{preset}`: {said}.")
    rows = len(training_part(settings, data))
    steps = max(1, rows // settings.batch)
    reasons.append(f"Batch {settings.batch}: {steps} step{'s' * (steps != 1)} per epoch.")
    if "epochs" not in keys:
        most = settings.epochs if preset == "demo" else EPOCHS
        epochs, said = _epochs(settings, data, steps, minutes, most)
        # one epoch has no room for a warm-up of one
        no_warmup = ["schedule.warmup=0"] * (epochs <= 1 and "schedule.warmup" not in keys)
        settings = read_settings(settings, [f"epochs={epochs}", *no_warmup])
        reasons.append(said)
    return Suggestion(settings, kind, tuple(reasons))


def kind_of(data: Dataset) -> tuple[str, str]:
    """Return "images", "table", "text", "series" or "pairs", and what tells so.

    Example:
        >>> kind_of(open_data({"x": np.eye(4)}))
        ('table', 'a matrix of 4 columns')
    """
    inputs = set(data.inputs)
    texts = inputs & {"texts", "captions"}
    if "images" in inputs:
        shape = data[[0]]["images"].shape[1:3]
        if texts:
            return "pairs", f"each of the images ({shape[0]} x {shape[1]} pixels) has a text"
        return "images", f"{shape[0]} x {shape[1]} pixels"
    if texts:
        several = "captions" in inputs and any(len(one) > 1 for one in data[[0]]["captions"])
        if several:
            return "pairs", "each row has several texts"
        return "text", "one text per row"
    name = next(iter(data.inputs))
    some = np.asarray(data[np.arange(min(len(data), 256))][name])
    if some.dtype.kind not in "fiub":
        raise InputError(f"`{data.name}` holds `{name}` of {some.dtype}; numbers are needed.")
    if some.ndim == 3:
        _, channels, length = some.shape
        need(
            channels <= length,
            lambda: (
                f"`{data.name}` holds `{name}` of shape {(len(data), channels, length)}; series "
                f"are (n, channels, length), time last. Save `{name}.transpose(0, 2, 1)`."
            ),
        )
        return "series", f"{channels} channel{'s' * (channels != 1)} of length {length}"
    need(some.ndim == 2, lambda: _unknown_shape(data.name, name, (len(data), *some.shape[1:])))
    columns = some.shape[1]
    smooth = _smoothness(some.astype(np.float64)) if columns >= LONG else 0.0
    if smooth > SMOOTH:
        return "series", (
            f"neighbouring values of its {columns} correlate by {smooth:.2f}, as in a signal"
        )
    return "table", f"a matrix of {columns} columns"


def _categories(data: Dataset) -> list[str]:
    """Return a sentence about columns of words, of which one may be the label."""
    if data.scaling is None:
        return []
    columns: dict[str, int] = {}
    for name in data.scaling.names:
        column, sign, _ = name.partition("=")
        if sign:
            columns[column] = columns.get(column, 0) + 1
    if not columns:
        return []
    listed = ", ".join(f"`{one}` ({n} values)" for one, n in columns.items())
    last = shlex.quote(next(reversed(columns)))
    label = "" if data.labels is not None else f" If one is the label, add `--labels {last}`."
    return [f"Text columns are one-hot encoded: {listed}.{label}"]


def _unknown_shape(file: str, name: str, shape: tuple[int, ...]) -> str:
    """Return what to save instead of an array that is no table, series or images."""
    known = (
        "known are images (n, height, width, channels), tables (n, d) and series "
        "(n, channels, length)"
    )
    said = f"`{file}` holds `{name}` of shape {shape}; {known}."
    if len(shape) == 4 and shape[1] <= 13 < min(shape[2:]):
        return f"{said} Save images as `np.savez(path, images={name}.transpose(0, 2, 3, 1))`."
    if len(shape) == 4 and shape[3] <= 13 < min(shape[1:3]):
        return f"{said} Save images under their name: `np.savez(path, images={name})`."
    return f"{said} Save it as one of these, such as `np.savez(path, x={name}.reshape(n, -1))`."


def _with_text_settings(data: Dataset, overrides: Iterable[str]) -> Dataset:
    """Return data whose texts are read as `--set data.tokenizer=` and `data.text_length=` say."""
    asked = [one for one in overrides if one.startswith(("data.tokenizer", "data.text_length"))]
    return with_tokenizer(read_settings("text", asked), data) if asked else data


def _smoothness(x: np.ndarray) -> float:
    """Return the mean correlation of neighbouring columns, each row centred."""
    x = x - x.mean(axis=1, keepdims=True)
    own = (x**2).sum(axis=1)
    kept = own > 0
    if not kept.any():
        return 0.0
    return float(((x[kept, 1:] * x[kept, :-1]).sum(axis=1) / own[kept]).mean())


def _opened(source: str) -> tuple[str, Dataset]:
    """Return the call for a source and its data; images of files at one small size."""
    if source.strip() == "digits":
        source = read_settings("demo").data.source
    call = as_call(source)
    if call.startswith("folder(") and "size=" not in call:
        call = as_call(call, size=_side(source), cache=True)
    if call.startswith("pairs(") and "size=" not in call and "pictures=" not in call:
        images = as_call(call, size=SIDE, cache=True)
        try:
            return images, open_data(images)
        except InputError as error:
            alone = as_call(call, pictures=False)
            data = open_data(alone)
            if "captions" in data.inputs and "npz" in str(error):  # no line names an image
                return alone, data
            raise
    return call, open_data(call)


def _side(folder: str) -> int:
    """Return the side to bring the images of a folder to: the smallest of some, at most 64."""
    files = itertools.islice(_image_files(Path(folder).expanduser()), 64)
    sides = []
    for file in files:
        with contextlib.suppress(OSError), Image.open(file) as image:  # a broken file is left out
            sides.append(min(image.size))
    return max(8, min([SIDE, *sides]) // 4 * 4)


def _image_files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() in EXTENSIONS)


def _batch(n: int) -> int:
    """Return a power of 2, at most 128, that leaves an epoch several steps.

    Example:
        >>> _batch(100_000), _batch(150), _batch(4)
        (128, 32, 2)
    """
    need(n >= 4, lambda: f"Training needs at least 4 rows that are not held out; there are {n}.")
    return min(128, 1 << max(1, (n // STEPS).bit_length() - 1))


def _images(data: Dataset) -> tuple[str, list[str], str]:
    if data.source is not None:
        source = ["views.first=''", "views.fresh=true", "data.distinct=true"]
        return (
            "demo",
            source,
            "the two views are two drawings of one handwriting; an epoch draws each twice",
        )
    size, plain, other = _size_and_channels(data)
    encoder = _small_net(size, other)
    if torch.cuda.is_available():
        encoder = f"ResNet(depth=18, stem='small'{other})"
    more = [f"views.first=SimCLR(size={size}, strength=0.5{plain})", f"network.encoder={encoder}"]
    threads = torch.get_num_threads()
    device = "a GPU" if torch.cuda.is_available() else f"{threads} CPU thread{'s' * (threads > 1)}"
    return "pictures", more, f"{encoder} on {device}; views are crops of {size} pixels"


def _size_and_channels(data: Dataset) -> tuple[int, str, str]:
    """Return the side to crop images to, and what view and network need to know of channels."""
    *sides, channels = data[[0]]["images"].shape[1:]
    size = max(8, min(SIDE, min(sides) // 4 * 4))
    if channels == 3:
        return size, "", ""
    return size, ", saturation=0, hue=0, grayscale=0", f", channels={channels}"  # colours are RGB's


def _small_net(size: int, more: str = "") -> str:
    """Return a residual network for a CPU; tiny images are not halved at once."""
    return f"ResNet(depth=9, width=0.25, stem='{'strided' if size >= 24 else 'small'}'{more})"


def _scaled(data: Dataset, axis: int | tuple[int, ...]) -> str:
    """Return the view that standardises columns or channels by the training side."""
    x = np.asarray(data.part("train").column(next(iter(data.inputs))), dtype=np.float64)
    need(
        bool(np.isfinite(x).all()),
        lambda: (
            f"`{data.name}` has {int((~np.isfinite(x)).sum())} numbers that are missing or "
            "infinite; fill or drop them first."
        ),
    )
    mean, std = x.mean(axis=axis), x.std(axis=axis)
    std = np.where(std > 1e-12, std, 1.0)
    told = lambda values: [float(f"{value:.6g}") for value in np.atleast_1d(values)]
    return f"Standardise(mean={told(mean)}, std={told(std)})"


def _table(data: Dataset) -> tuple[str, list[str], str]:
    columns = data[[0]][next(iter(data.inputs))].shape[1]
    width = 256 if columns <= 512 else 512
    scaled = "" if data.scaling is not None else f"{_scaled(data, 0)}, "  # or by the reader
    more = [
        f"views.first=Chain({scaled}Jitter(noise=0.2), Mask(p=0.3))",
        f"network.encoder=MLP(d_in={columns}, d=64, depth=3, width={width}, normalisation='batch')",
    ]
    return "table", more, "columns are standardised; views hide columns and add noise"


def _series(data: Dataset) -> tuple[str, list[str], str]:
    shape = data[[0]][next(iter(data.inputs))].shape[1:]
    channels, length = (1, shape[0]) if len(shape) == 1 else shape
    scaled = _scaled(data, (0, 2)) if len(shape) > 1 else _whole(data)
    stride = max(1, min(8, length // 512))
    depth = max(1, min(4, (int(0.7 * length) // stride).bit_length() - 3))
    span = max(1, length // 25)
    more = [
        f"views.first=Chain({scaled}, Window(share=0.7), Jitter(noise=0.1, scale=0.2), "
        f"Mask(p=0.1, span={span}))",
        f"network.encoder=SeriesNet(channels={channels}, d=128, width=32, depth={depth}, "
        f"stride={stride})",
    ]
    return "series", more, "a 1-D convolutional network; views are windows, noise and gaps"


def _whole(data: Dataset) -> str:
    x = np.asarray(data.part("train").column(next(iter(data.inputs))), dtype=np.float64)
    return f"Standardise(mean={x.mean():.6g}, std={max(float(x.std()), 1e-12):.6g})"


def _text(data: Dataset) -> tuple[str, list[str], str]:
    encoder, view, over = _reads(data)
    return "text", [*encoder, view], f"a transformer over {over}; views hide different spans"


def _reads(data: Dataset) -> tuple[list[str], str, str]:
    """Return the encoder of texts, a view that hides tokens, and what the tokens are."""
    if data.tokenizer is None:
        return [], "views.first=Mask(p=0.3, span=6)", "bytes"
    n, length, padding = (
        data.tokenizer.n_tokens,
        data.tokenizer.length,
        data.tokenizer.padding,
    )
    encoder = (
        f"network.encoder=SequenceTransformer(n_tokens={n}, length={length}, d=128, depth=2, "
        f"padding={padding}, dropout=0.1)"
    )
    own = bool(data.tokenizer.source)
    view = f"views.first=Mask(p=0.3, span={2 if own else 6}, fill={padding})"
    return [encoder], view, f"{n:,} tokens" if own else f"at most {length} bytes"


def _pairs(data: Dataset) -> tuple[str, list[str], str]:
    if "images" not in data.inputs:
        encoder, _, over = _reads(data)
        several = all(len(one) > 1 for one in data[np.arange(min(len(data), 256))]["captions"])
        views = ["views.first=Rewrites()"]
        if several:  # the first text, and one of the others
            views = ["views.first=Rewrites(original=1)", "views.second=Rewrites(original=0)"]
        said = f"a transformer over {over}; the two views are two texts of a sample"
        return "text", [*encoder, *views], said
    size, plain, other = _size_and_channels(data)
    more = [
        f"views.first=SimCLR(size={size}, strength=0.05{plain})",
        f"network.encoder={_small_net(size, other)}",
    ]
    return "emoji-clip", more, "CLIP: an image encoder and a text encoder, trained together"


_CHOOSE: dict[str, Any] = {
    "images": _images,
    "table": _table,
    "series": _series,
    "text": _text,
    "pairs": _pairs,
}


def _epochs(
    settings: Settings, data: Dataset, steps: int, minutes: float | None, most: int
) -> tuple[int, str]:
    """Return the epochs that fit into the time, at most so many unless it is given; a sentence."""
    seconds = _step_seconds(settings, data) * steps
    budget = 60 * (MINUTES if minutes is None else minutes)
    most = most if minutes is None else 100 * EPOCHS
    epochs = int(min(most, max(1, budget // seconds)))
    about = duration(epochs * seconds)
    end = f"{epochs} epoch{'s' * (epochs != 1)}, about {about} on this machine"
    if seconds > budget:
        return epochs, f"{end}: more than {budget / 60:g} min, but a run has at least one epoch."
    if minutes is not None:
        return epochs, f"{end} (`--minutes {minutes:g}`)."
    return epochs, f"{end}; `--minutes` sets the time."


def _step_seconds(settings: Settings, data: Dataset) -> float:
    """Time a step: views, networks, objective, backward."""
    part = training_part(settings, data)
    pairs, networks = Pairs.of(settings, part), build(settings.network, settings.seed)
    device = device_of(settings.device)
    require_vocabulary(networks, part)
    networks, objective = networks.to(device).train(), settings.make_objective().to(device)
    rows = np.arange(min(settings.batch, len(part)))
    labels = part.labels if "labels" in objective.takes else None
    with torch.random.fork_rng(devices=[]):
        for turn in range(3):
            if turn == 1:  # the first one pays for what is set up once
                began = time.perf_counter()
            x1, x2 = (x.to(device) for x in pairs(rows, 0))
            z1, z2 = networks(x1, side=0), networks(x2, side=1)
            y = () if labels is None else (torch.as_tensor(labels[rows]).to(device),)
            objective(z1, z2, *y).backward()
    return (time.perf_counter() - began) / 2
