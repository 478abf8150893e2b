"""`embed`: what a trained network makes of data; and a callback that does so while it trains."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chiaroscuro.artifacts import Embeddings, Run, checkpoints
from chiaroscuro.data import Dataset, open_data
from chiaroscuro.engine.batches import plain, spaced, tokens, training_part
from chiaroscuro.engine.networks import Networks, build
from chiaroscuro.engine.settings import Settings, ViewSettings
from chiaroscuro.engine.training import Callback, Moment
from chiaroscuro.errors import ChiaroError, need
from chiaroscuro.models import unpack
from chiaroscuro.views import LabelledContext

__all__ = ["embed", "held_out", "load_networks", "newest_weights"]

BATCH = 256
THUMBNAIL = 32
"""Pixels of a side; smaller pictures keep their own."""


def embed(
    subject: Any,
    data: Any = None,
    side: int = 0,
    template: str = "{}",
    views: ViewSettings | None = None,
) -> Embeddings:
    """Embeddings of a data set, with all that is known of its rows.

    Holds `h`, and `z` where there is a projector; labels, class names, factors, split and ids where
    the data have them; thumbnails of pictures and `layer_input` of arrays. Of a run it also holds
    `layer_untrained`, the representations before the first step: the control that evaluation
    needs; and `about`, what it was trained on: which part, how many rows of which side of the
    split, whether labels were seen. Networks are in evaluation mode, and left as they were. Samples
    come to them as the views of the training leave all samples alike (`View.plain`): pictures in
    their size, bilinearly, and with their normalisation.

    Of pictures with texts and a network for each it holds both sides of each pair: `z1` and `z2`
    are the projections of the picture and of its first text, `layer_texts` the representation of
    the text, `layer_untrained_z1` and `layer_untrained_z2` the control. If the classes have names,
    `prompts` are the template filled with each, and `prompt_z` their projections: what zero-shot
    classification needs.

    Args:
        subject: a `Run`, its folder, `Networks`, or any module that maps samples to (n, d).
        data: a data set or a text for `open_data`; None is what the run was trained on, both sides
            of its split.
        side: 1 makes h and z those of the second network of a pair, the one for texts.
        template: with `{}` where the name of a class goes. The name alone by default, which takes
            no stand on how captions are phrased; CLIP's is "A photo of a {}."
            [radford2021clip, Sec. 3.1.4].
        views: that the networks were trained on; a run knows its own, and None leaves samples as
            they are.

    Example:
        >>> from chiaroscuro.models import MLP
        >>> embed(MLP(d_in=3, d=2), {"x": np.eye(3, dtype=np.float32), "labels": np.arange(3)})
        Embeddings(h=(3, 2) float32, labels=(3,) int64, ..., layer_input=(3, 3) float32)
    """
    need(
        template.count("{}") == 1,
        lambda: f"`embed(template)` needs `{{}}` once, for the class; received `{template}`.",
    )
    before, about = None, None
    if isinstance(subject, str | os.PathLike):
        subject = Run.open(subject)
    if isinstance(subject, Run):
        settings = Settings.of(subject.settings())
        data = settings.data.source if data is None else data
        table, networks = open_data(data), load_networks(subject)
        before, views = build(settings.network, settings.seed), settings.views
        own = isinstance(data, str) and data.strip() == settings.data.source.strip()
        about = _about(settings, before, table if own else None)
    else:
        need(data is not None, "`embed(model, data)` needs data; received None.")
        table, networks = open_data(data), subject
    if table.skipped:
        about = {**(about or {}), "skipped": table.skipped_said()}
    known, layers = _known(table), _input(table)
    both = _two_sided(networks, table)
    sides = {s: _through(networks, table, s, views) for s in ((0, 1) if both else (side,))}
    start = {s: _through(before, table, s, views) for s in sides} if before is not None else {}
    if start:
        layers["untrained"] = start[side][0]
    if both:
        layers["texts"] = sides[1][0]
        known |= {f"z{s + 1}": z for s, (_, z) in sides.items()}
        layers |= {f"untrained_z{s + 1}": z for s, (_, z) in start.items() if z is not None}
        known |= _prompted(known.get("class_names"), template, networks, before)
    h, z = sides[side]
    return Embeddings(h=h, z=z, layers=layers, about=about, **known)


def load_networks(run: Run) -> Networks:
    """The networks of a run's newest good checkpoint; the averaged ones where it keeps an average.

    Args:
        run: a run that has saved at least once.
    """
    settings = Settings.of(run.settings())
    found = checkpoints.latest_good(run.checkpoints)
    if found.checkpoint is None:
        raise ChiaroError(
            f"`{run.folder}` has no good checkpoint, of {len(found.bad)} found; train it first."
        )
    saved = unpack(found.checkpoint.arrays, found.checkpoint.state)
    networks = build(settings.network, settings.seed)
    state = saved["networks"]
    if saved["average"] is not None:
        state = {name.removeprefix("module."): value for name, value in saved["average"].items()}
    networks.load_state_dict(state)
    return networks.eval()


def newest_weights(run: Run | str | os.PathLike) -> str:
    """Which weights `load_networks` takes, as a sentence for a protocol.

    Args:
        run: or its folder.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    found = checkpoints.latest_good(run.checkpoints).checkpoint
    averaged = ", averaged" if Settings.of(run.settings()).network.average else ""
    step = "no step" if found is None else f"step {found.step}"
    return f"of {step}, the newest checkpoint{averaged}; never the best of several"


def held_out(
    measure: Callable[[tuple[Any, Any], tuple[Any, Any]], Mapping[str, float]],
    rows: int = 1000,
    every: int = 1,
) -> Callback:
    """A callback that hands representations of two parts of the training rows to a measure.

    A third of the rows that training sees is held out from the others, class by class and with
    groups kept whole. The test side of a split is never looked at, so that whoever stops a training
    or chooses settings by these numbers has not chosen by the test. Both parts were trained on: an
    objective that sees labels flatters itself here. Data without labels give no measure. It decides
    nothing: it is there to look at.

    Args:
        measure: of (h, labels) of the larger part and of the one held out to numbers by name.
        rows: at most so many of the part held out, and twice as many of the other, evenly spaced.
        every: epochs between looks; the last epoch is always looked at.
    """
    chosen: list[tuple[Dataset, ...]] = []

    def callback(moment: Moment) -> Mapping[str, float]:
        if (moment.epoch + 1) % every and moment.step < moment.steps:
            return {}
        if not chosen:
            chosen.append(_inner(moment.data, rows))
        if not chosen[0]:
            return {}
        views = moment.settings.views
        known, asked = (
            (_through(moment.networks, part, 0, views)[0], part.labels) for part in chosen[0]
        )
        return measure(known, asked)

    return callback


def _inner(data: Dataset, rows: int) -> tuple[Dataset, ...]:
    """Two parts of the training side, the second a third of it; nothing where that cannot be."""
    data = data if data.split is None else data.part("train")
    groups = np.arange(len(data)) if data.groups is None else data.groups
    if data.labels is None or len(np.unique(groups)) < 2:
        return ()
    halves = data.with_split(1 / 3)
    known, asked = spaced(halves.part("train"), 2 * rows), spaced(halves.part("test"), rows)
    return (known, asked) if len(known) and len(asked) else ()


# ---- going through ----


def _through(
    networks: nn.Module, data: Dataset, side: int, views: ViewSettings | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """h and, where there is a projector, z of every row."""
    view = None if views is None else views.objects()[side]
    device = next((p.device for p in networks.parameters()), torch.device("cpu"))
    hs: list[Tensor] = []
    zs: list[Tensor] = []
    with _evaluating(networks), torch.no_grad():
        for start in range(0, len(data), BATCH):
            rows = np.arange(start, min(start + BATCH, len(data)))
            x = plain(data, rows, side, view).to(device)
            ours = isinstance(networks, Networks)
            h = networks.encode(x, side) if ours else networks(x)  # type: ignore[operator]
            need(
                isinstance(h, Tensor) and h.ndim == 2 and len(h) == len(rows),
                lambda rows=rows: (
                    f"`embed(model, data)` needs a model that gives a matrix ({len(rows)}, d) for "
                    f"{len(rows)} samples."
                ),
            )
            hs.append(h.float().cpu())
            if ours:
                zs.append(networks.project(h, side).float().cpu())  # type: ignore[operator]
    need(bool(hs), lambda: f"`embed` needs at least 1 sample; `{data.name}` has 0.")
    return torch.cat(hs).numpy(), torch.cat(zs).numpy() if zs else None


def _two_sided(networks: nn.Module, data: Dataset) -> bool:
    """Whether pictures and their texts go through a network each."""
    columns = set(data.inputs)
    two = isinstance(networks, Networks) and len(networks.encoders) > 1
    return two and "images" in columns and bool(columns & {"texts", "captions"})


def _prompted(
    names: np.ndarray | None, template: str, networks: Any, before: Any
) -> dict[str, np.ndarray]:
    """What the text encoders make of the template, filled with each class name."""
    if names is None:
        return {}
    prompts = [template.replace("{}", str(name)) for name in names]
    found = {"prompts": np.array(prompts)}
    for key, texts in (("prompt_z", networks), ("untrained_prompt_z", before)):
        if texts is not None:
            device = next(texts.parameters()).device
            with _evaluating(texts), torch.no_grad():
                z = texts.project(texts.encode(tokens(prompts).to(device), 1), 1)
            found[key] = z.float().cpu().numpy()
    return found


@contextlib.contextmanager
def _evaluating(networks: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in networks.modules()}
    networks.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


# ---- what is known of the training and of the rows ----


def _about(settings: Settings, before: Networks, source: Dataset | None) -> dict[str, str]:
    """What a run was trained on, for evaluations; rows are counted where the data are its own."""
    views = settings.views.objects()
    labels = "labels" in settings.make_objective().takes
    labels = labels or any(isinstance(view, LabelledContext) for view in views)
    facts = {
        "trained_on.source": settings.data.source,
        "trained_on.part": settings.data.part,
        "trained_on.labels": "seen" if labels else "not seen",
    }
    if source is not None:
        seen = training_part(settings, source)
        facts["trained_on.rows"] = str(len(seen))
        if seen.split is not None:
            facts["trained_on.test_rows"] = str(int((seen.split == 1).sum()))
    pretrained = any(encoder.pretrained for encoder in before.encoders)
    facts["untrained"] = f"before training ({'pretrained' if pretrained else 'fresh weights'})"
    return facts


def _known(data: Dataset) -> dict[str, Any]:
    known: dict[str, Any] = {name: data.columns.get(name) for name in _DESCRIPTIONS}
    found = {name: data.column(name) for name, column in known.items() if column is not None}
    found["ids"] = data.ids if data.ids.dtype.kind in "iuU" else data.ids.astype(str)
    if data.class_names and "labels" in found:
        found["class_names"] = np.array(data.class_names)
    if data.factor_names and "factors" in found:
        found["factor_names"] = np.array(data.factor_names)
    if "texts" in data.inputs:
        found["texts"] = np.array([str(text) for text in data.column("texts")])
    if "images" in data.inputs:
        found["thumbnails"] = _thumbnails(data)
    return found


_DESCRIPTIONS = ("labels", "coarse_labels", "factors", "split")


def _thumbnails(data: Dataset) -> np.ndarray:
    out = []
    for start in range(0, len(data), BATCH):
        rows = np.arange(start, min(start + BATCH, len(data)))
        x = torch.from_numpy(np.ascontiguousarray(data[rows]["images"])).permute(0, 3, 1, 2)
        side = min(THUMBNAIL, max(x.shape[2:]))
        if tuple(x.shape[2:]) != (side, side):
            x = F.interpolate(x.float(), (side, side), mode="area").round_().to(torch.uint8)
        out.append(x.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy())
    return np.concatenate(out)


def _input(data: Dataset) -> dict[str, np.ndarray]:
    if "images" in data.inputs or "x" not in data.inputs:
        return {}
    x = data.column("x")
    numbers = x.dtype.kind in "fiu" and x.ndim >= 2
    return {"input": x.reshape(len(x), -1)} if numbers else {}
