"""`finetune`: a pretrained network on few labels, beside the same network from scratch."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from scipy.stats import t as student
from torch import nn

from chiaroscuro import figures, models
from chiaroscuro.artifacts.files import read_json
from chiaroscuro.data import Dataset, open_data
from chiaroscuro.diagnostics.assembly.probe import ridge_probe
from chiaroscuro.diagnostics.rows import Labelled
from chiaroscuro.display import html_table
from chiaroscuro.engine import Networks, OpenRun, open_run, plain
from chiaroscuro.engine.embedding import pass_through
from chiaroscuro.engine.networks import dimension
from chiaroscuro.engine.sample_transform import as_view
from chiaroscuro.engine.settings import model_names
from chiaroscuro.errors import InputError, need
from chiaroscuro.exporting import Pretrained, load_pretrained
from chiaroscuro.finetuning.layers import layers_of
from chiaroscuro.finetuning.supervised import Classifier, Rows, Supervised, accuracy, fit_labels
from chiaroscuro.models import Adapter, Model
from chiaroscuro.spec import parse
from chiaroscuro.views import MultiCrop, SimCLR

__all__ = ["FinetuneSettings", "Finetuned", "finetune"]

ARMS = ("probe", "scratch", "finetuned")
"""A linear probe of the pretrained network as it is; the same network with fresh weights; and the
pretrained network, the last two trained in the same way."""

_NAMES = {"probe": "linear probe", "scratch": "from scratch", "finetuned": "fine-tuned"}


@dataclass(frozen=True)
class FinetuneSettings(Supervised):
    """Settings of a fine-tuning comparison.

    Args:
        fractions: of the labelled training rows, drawn class by class; 1 %, 10 % and all
            [chen2020simclr, Sec. 6].
        seeds: repetitions of everything that is drawn: labels, order, views, fresh weights.
        steps, batch, lr, weight_decay, layer_decay, layers, smoothing: as for `Supervised`.

    Example:
        >>> FinetuneSettings(fractions=(2.0,))
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `fractions` needs numbers above 0 and up to 1; ...
    """

    fractions: tuple[float, ...] = (0.01, 0.1, 1.0)
    seeds: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "fractions", tuple(sorted(set(self.fractions))))
        need(
            bool(self.fractions) and all(0 < f <= 1 for f in self.fractions),
            lambda: f"`fractions` needs numbers above 0 and up to 1; received {self.fractions}.",
        )
        for name in ("seeds", "steps", "batch"):
            value = getattr(self, name)
            need(value >= 1, lambda name=name, value=value: f"`{name}` needs 1; received {value}.")
        need(self.layers >= 0, lambda: f"`layers` needs at least 0; received {self.layers}.")
        for name, most in (("lr", math.inf), ("layer_decay", 1.0), ("weight_decay", math.inf)):
            value = getattr(self, name)
            need(
                0 <= value <= most and (value > 0 or name == "weight_decay"),
                lambda name=name, value=value, most=most: (
                    f"`{name}` needs a number above 0 and up to {most:g}; received {value}."
                ),
            )


@dataclass(frozen=True, eq=False)
class Finetuned:
    """Result of `finetune`.

    Args:
        rows: one for each fraction, seed and arm: `fraction`, `n_labels`, `seed`, `arm` and
            `accuracy` on the held-out rows.
        protocol: what was trained on what, and how.
        folder: where it was written.
    """

    rows: list[dict[str, Any]]
    protocol: dict[str, Any]
    folder: Path | None = None

    def summary(self) -> list[dict[str, Any]]:
        """Return one row for each fraction: mean and half of the 95 % interval over seeds, by arm,
        and of the paired difference `gain`, fine-tuned minus from scratch."""
        lines = []
        for fraction in sorted({row["fraction"] for row in self.rows}):
            some = [row for row in self.rows if row["fraction"] == fraction]
            by = {
                arm: np.array([r["accuracy"] for r in some if r["arm"] == arm], dtype=float)
                for arm in ARMS
            }
            line: dict[str, Any] = {"fraction": fraction, "n_labels": some[0]["n_labels"]}
            for arm, values in (*by.items(), ("gain", by["finetuned"] - by["scratch"])):
                line[arm], line[f"{arm}_interval"] = _interval(values)
            line["helped"] = _verdict(line["gain"], line["gain_interval"])
            lines.append(line)
        return lines

    def json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"protocol": self.protocol, "rows": self.rows, "summary": self.summary()}

    def __str__(self) -> str:
        p = self.protocol
        head = (
            f"{p['network']} on {p['data']}: {p['n_train']} labelled rows, {p['n_test']} held out, "
            f"{p['n_classes']} classes; seeds: {p['settings']['seeds']}, 95 % intervals"
        )
        cells = [("labels", *_NAMES.values(), "gain", "did pretraining help?")]
        cells += [_cells(line) for line in self.summary()]
        widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([head, *lines])

    def plot(self, ax: Any = None) -> Any:
        """Draw the accuracy of each arm over the number of labels, with its 95 % interval.

        Needs `chiaroscuro[plots]`.

        Args:
            ax: matplotlib axes; None makes new ones.
        """
        ax, lines = figures.axes(ax), self.summary()
        counts = [line["n_labels"] for line in lines]
        for arm, colour in zip(ARMS, (figures.GREY, *figures.COLOURS), strict=False):
            halves = [line[f"{arm}_interval"] or 0.0 for line in lines]
            ax.errorbar(
                counts, [line[arm] for line in lines], yerr=halves, label=_NAMES[arm],
                color=colour, marker="o", capsize=3,
            )  # fmt: skip
        ax.set_xscale("log")
        ax.set_xlabel("labels")
        ax.set_ylabel("accuracy on held-out rows")
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        heads = ("labels", *_NAMES.values(), "gain", "did pretraining help?")
        title = f"Fine-tuned on {self.protocol['data']}"
        return html_table(title, [_cells(line) for line in self.summary()], heads)


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    share = f"{100 * line['fraction']:g} % ({line['n_labels']})"
    shown = [_percent(line[arm], line[f"{arm}_interval"]) for arm in (*ARMS, "gain")]
    return share, *shown, line["helped"]


def _percent(mean: float, half: float | None) -> str:
    return f"{100 * mean:.1f}" + ("" if half is None else f" ± {100 * half:.1f}") + " %"


def _interval(values: NDArray[np.float64]) -> tuple[float, float | None]:
    """Mean, and half of its 95 % interval by Student's t; None for a single seed."""
    n = len(values)
    if n < 2:
        return float(values.mean()), None
    half = float(student.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n))
    return float(values.mean()), half


def _verdict(gain: float, half: float | None) -> str:
    if half is None:
        return "one seed: not known"
    if abs(gain) <= half:
        return "not resolved"
    return "yes" if gain > 0 else "no, it hurt"


# ---- the comparison ----


def finetune(
    subject: Any,
    data: Any,
    out: str | os.PathLike | None = None,
    settings: FinetuneSettings = FinetuneSettings(),  # noqa: B008 - frozen
    *,
    encoder: Any = None,
    view: Any = None,
    scratch: Callable[[], nn.Module] | None = None,
    partial: bool = False,
    device: str = "auto",
    progress: Callable[[str], None] | None = None,
) -> Finetuned:
    """Fine-tune a pretrained network on labels, beside a linear probe and training from scratch.

    For each fraction of the labels and each seed three accuracies on the held-out rows: of a linear
    probe (ridge) on the network as it is, of the same network with fresh weights trained on these
    labels, and of the pretrained network trained in the same way. Nothing is chosen by the held-out
    rows. Each is kept in `out` as soon as it is done, and a stopped comparison goes on from there.

    Args:
        subject: a run (a `Run`, its folder, an `OpenRun`), what `load_pretrained` returns or its
            folder, a module, or a file of weights together with `encoder`.
        data: with labels and a held-out split; whatever `open_data` takes.
        out: a folder for `finetune.json`, `table.txt` and `model.safetensors`, the network
            fine-tuned on the largest fraction with the first seed; None writes nothing.
        settings: fractions, seeds, steps, rates, layers.
        encoder: the network that a file of weights is for, or its text.
        view: that labelled images are seen through while training, or its text; by default a random
            crop and a flip [chen2020simclr, App. B.5] for images whose size is known, else none. A
            network that brings no view of its own sees held-out images in the size and
            normalisation of this one.
        scratch: makes the network with fresh weights; needed for a module that cannot be drawn
            again.
        partial: take weights that fit in part, as `load_weights` does.
        device: "auto" is CUDA where there is one, else the CPU.
        progress: told a line for each piece.

    References:
        chen2020simclr, bao2022beit, clark2020electra
    """
    source, view = _source(subject, encoder, partial), as_view(view)
    if source.view is None:  # held-out images are brought to its size and normalisation too
        source = dataclasses.replace(source, view=view)
    table = open_data(data)
    if source.origin is not None:  # scaled and tokenised as in training
        table = source.origin.as_trained(table)
    train, test, n_classes = _sides(table)
    seen = _training_view(source.view) if view is None else view
    d = dimension(source.encoder, _two(table, source.view))
    n_layers = len(layers_of(source.encoder))
    need(
        settings.layers <= n_layers,
        lambda: f"`layers` needs a number from 0 (all) to {n_layers}; received {settings.layers}.",
    )
    protocol = {
        "subject": source.name,
        "network": source.described,
        "n_layers": n_layers,
        "data": table.name,
        "n_train": len(train.at),
        "n_test": len(test.at),
        "n_classes": n_classes,
        "view": "none" if seen is None else repr(seen),
        "probe": "ridge on standardised features, penalty 1, of the same labels",
        "selection": "nothing is chosen by the held-out rows; the last step counts",
        "settings": dataclasses.asdict(settings),
    }
    if source.fitted:
        protocol["weights"] = source.fitted
        if progress is not None:
            progress(f"{source.name}: {source.fitted}")
    folder = None if out is None else Path(out)
    kept = _Kept(folder, protocol, _fingerprint(source.encoder))
    h = _embedded(source.encoder, table, source.view) if kept.missing(settings, "probe") else None
    draw = scratch or (lambda: _fresh(source.encoder))
    rows: list[dict[str, Any]] = []
    for fraction, seed in _pieces(settings):
        labelled = _labelled(train, fraction, seed)

        def probe(labelled: Rows = labelled) -> float:
            features = np.asarray(h)
            both = [Labelled(features[some.at], some.y) for some in (labelled, test)]
            return ridge_probe(both[0], both[1])

        def trained(
            arm: str, labelled: Rows = labelled, seed: int = seed, fraction: float = fraction
        ) -> float:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                net = copy.deepcopy(source.encoder) if arm == "finetuned" else draw()
                model = Classifier(net.requires_grad_(True), d, n_classes)
            how = settings
            if arm == "scratch":  # all of it has to learn, at one rate
                how = dataclasses.replace(settings, layers=0, layer_decay=1.0)
            fit_labels(model, labelled, seen, how, seed, device)
            largest = arm == "finetuned" and seed == 0 and fraction == max(settings.fractions)
            if folder is not None and largest:
                _save(model, folder)
            return accuracy(model, test, source.view)

        for arm in ARMS:
            work = probe if arm == "probe" else (lambda arm=arm, run=trained: run(arm))
            value = kept(f"{fraction:g} {seed} {arm}", work)
            known = {"fraction": fraction, "n_labels": len(labelled.at), "seed": seed, "arm": arm}
            rows.append({**known, "accuracy": value})
            if progress is not None:
                progress(
                    f"{100 * fraction:g} % of the labels, seed {seed}, {_NAMES[arm]}: "
                    f"{100 * value:.1f} %"
                )
    made = Finetuned(rows, protocol, folder)
    if folder is not None:
        (folder / "finetune.json").write_text(json.dumps(made.json(), indent=2), encoding="utf-8")
        (folder / "table.txt").write_text(f"{made}\n", encoding="utf-8")
    return made


def _pieces(settings: FinetuneSettings) -> Iterator[tuple[float, int]]:
    for fraction in settings.fractions:
        for seed in range(settings.seeds):
            yield fraction, seed


class _Kept:
    """Accuracies that are done, in a file that a stopped comparison goes on from."""

    def __init__(self, folder: Path | None, protocol: dict[str, Any], weights: str):
        self.path = None if folder is None else folder / "pieces.json"
        self.mark = {"protocol": json.loads(json.dumps(protocol)), "weights": weights}
        self.done: dict[str, float] = {}
        if folder is None or self.path is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.is_file():
            stored = read_json(self.path)
            need(
                isinstance(stored, dict) and isinstance(stored.get("done"), dict),
                lambda: f"`{self.path}` is damaged: it has no accuracies that are done. Remove it.",
            )
            need(
                stored.get("mark") == self.mark,
                lambda: (
                    f"`{folder}` holds a comparison of another network, other data or settings; "
                    "take a new folder."
                ),
            )
            self.done = stored["done"]

    def missing(self, settings: FinetuneSettings, arm: str) -> bool:
        """Return whether there is work left for an arm."""
        names = (f"{fraction:g} {seed} {arm}" for fraction, seed in _pieces(settings))
        return any(name not in self.done for name in names)

    def __call__(self, name: str, work: Callable[[], float]) -> float:
        if name not in self.done:
            self.done[name] = work()
            if self.path is not None:
                half = self.path.with_suffix(".part")
                half.write_text(json.dumps({"mark": self.mark, "done": self.done}))
                os.replace(half, self.path)
        return self.done[name]


# ---- networks ----


@dataclass(frozen=True, eq=False)
class _Source:
    encoder: nn.Module
    view: Any
    name: str
    origin: OpenRun | Pretrained | None = None
    fitted: str = ""

    @property
    def described(self) -> str:
        encoder = self.encoder
        return repr(encoder) if isinstance(encoder, Model) else f"<{type(encoder).__name__}>"


def _source(subject: Any, encoder: Any, partial: bool) -> _Source:
    """Return the pretrained network, and the view that knows the size of what it takes."""
    if isinstance(subject, Pretrained):
        return _Source(subject.encoder, subject.view, "a pretrained network", subject)
    if isinstance(subject, nn.Module):
        return _Source(subject, None, type(subject).__name__)
    path = isinstance(subject, str | os.PathLike)
    if path and os.path.isfile(os.path.join(subject, "config.json")) and encoder is None:
        loaded = load_pretrained(subject)
        return _Source(loaded.encoder, loaded.view, str(subject), loaded)
    if path and os.path.isfile(subject):
        need(
            encoder is not None,
            lambda: (
                f"`{subject}` holds weights; say which network they are for: "
                "`encoder='ResNet(depth=18)'`."
            ),
        )
        net = parse(encoder, model_names()) if isinstance(encoder, str) else encoder
        need(
            isinstance(net, nn.Module),
            lambda: f"`encoder` needs a network; received `{type(net).__name__}`.",
        )
        match = models.load_weights(net, subject, partial)
        return _Source(net, None, str(subject), fitted=str(match))
    given = {} if encoder is None else {"encoder": encoder}
    if path and not os.path.exists(subject):
        raise InputError(f"`{subject}` does not exist: no run, folder or file has that name.")
    run = subject if isinstance(subject, OpenRun) and not given else open_run(subject, **given)
    return _Source(run.encoder, run.views[0], run.name, run)


def _fresh(encoder: nn.Module) -> nn.Module:
    """Return the same network with weights drawn anew from torch's generator."""
    if not isinstance(encoder, Model) or (isinstance(encoder, Adapter) and not encoder.origin):
        return _drawn_again(encoder)
    with models.without_weights():
        return parse(repr(encoder), model_names())


def _drawn_again(encoder: nn.Module) -> nn.Module:
    net = copy.deepcopy(encoder)
    left = []
    for name, module in net.named_modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            left += [
                f"{name}.{own}".lstrip(".") for own, _ in module.named_parameters(recurse=False)
            ]
    need(
        not left,
        lambda: (
            f"The network from scratch needs fresh weights; {len(left)} tensors of "
            f"`{type(encoder).__name__}` cannot be drawn again, the first is `{left[0]}`. Give "
            "`scratch`, a function that makes the network."
        ),
    )
    return net


def _training_view(view: Any) -> Any:
    """Return random crops and flips in the size and normalisation that the network knows."""
    if isinstance(view, MultiCrop):
        view = view.groups[0][1]
    if not isinstance(view, SimCLR):
        return None
    return SimCLR(
        size=view.size, strength=0.0, scale=(0.08, 1.0), flip=0.5, jitter=0.0, grayscale=0.0,
        mean=view.mean, std=view.std,
    )  # fmt: skip


def _embedded(encoder: nn.Module, data: Dataset, view: Any) -> NDArray[Any]:
    return pass_through(Networks([encoder]), data, 0, (view, view))[0]


def _two(data: Dataset, view: Any) -> Any:
    return plain(data, np.arange(min(2, len(data))), 0, view)


def _save(model: Classifier, folder: Path) -> None:
    tensors = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")


def _fingerprint(encoder: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return digest.hexdigest()


# ---- labels ----


def _sides(data: Dataset) -> tuple[Rows, Rows, int]:
    need(
        data.labels is not None and data.split is not None,
        lambda: (
            f"`finetune` needs labels and a held-out split; `{data.name}` has "
            f"{'labels' if data.labels is not None else 'no labels'} and "
            f"{'a split' if data.split is not None else 'no split'}. Hold rows out by `test`: "
            "`arrays('mine.npz', test=0.2)`."
        ),
    )
    y, split = np.asarray(data.labels), np.asarray(data.split)
    names, places = np.unique(y, return_inverse=True)
    places = places - int((names < 0).sum())  # rows without a label have -1
    sides = []
    for side in (0, 1):
        at = np.flatnonzero((split == side) & (y >= 0))
        sides.append(Rows(data, at.astype(np.int64), places[at].astype(np.int64)))
    n_classes = int((names >= 0).sum())
    need(
        n_classes >= 2 and len(sides[0].at) >= n_classes and len(sides[1].at) >= 1,
        lambda: (
            "`finetune` needs at least 2 classes, as many labelled training rows and a held-out "
            f"one; received {n_classes}, {len(sides[0].at)} and {len(sides[1].at)}."
        ),
    )
    return sides[0], sides[1], n_classes


def _labelled(rows: Rows, fraction: float, seed: int) -> Rows:
    """Return a share of every class, one row of it at least, drawn by the seed."""
    if fraction == 1:
        return rows
    rng = np.random.default_rng(seed)
    chosen: list[NDArray[np.int64]] = []
    for label in np.unique(rows.y):
        at = np.flatnonzero(rows.y == label)
        chosen.append(rng.permutation(at)[: max(1, round(fraction * len(at)))])
    some = np.sort(np.concatenate(chosen))
    return Rows(rows.data, rows.at[some], rows.y[some])
