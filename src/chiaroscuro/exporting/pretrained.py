"""Save a trained network in one folder, and load it again without the run."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import chiaroscuro.models as models
from chiaroscuro import views
from chiaroscuro.artifacts import Embeddings, Run, to_toml
from chiaroscuro.artifacts.files import newer, read_json
from chiaroscuro.data import Dataset, Scaling, Tokenizer, open_data
from chiaroscuro.data.pictures import as_images
from chiaroscuro.diagnostics import evaluate
from chiaroscuro.engine import Networks, OpenRun, embed, open_run, plain
from chiaroscuro.engine.settings import DataSettings, model_names
from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.exporting.card import Facts, card
from chiaroscuro.exporting.files import Files, Preprocessing
from chiaroscuro.exporting.graphs import to_onnx, to_program
from chiaroscuro.exporting.libraries import for_timm, for_torchvision, for_transformers
from chiaroscuro.models import Adapter, Model, Projector
from chiaroscuro.spec import parse

__all__ = ["TARGETS", "Pretrained", "export", "load_pretrained", "save_pretrained"]

PRETRAINED_FORMAT = 1
TARGETS = ("timm", "torchvision", "transformers", "onnx", "torch")
_LIBRARIES: dict[str, Callable[[Model, Preprocessing], Files]] = {
    "timm": for_timm,
    "torchvision": for_torchvision,
    "transformers": for_transformers,
}
_USAGE = 'import chiaroscuro as cs\n\nmodel = cs.load_pretrained("DIR")\nh = model.embed(data).h'
_TOKENIZER = (
    '{imports}, AutoTokenizer\n\ntokenizer = AutoTokenizer.from_pretrained("DIR")\n'
    "inputs = tokenizer(\n    texts, padding=True, truncation=True, max_length={length}, "
    'return_tensors="pt"\n)\n{model}'
)
_PROGRAM = 'import torch\n\nmodel = torch.export.load("DIR/model.pt2").module()\nh = model(x)'
_ONNX = (
    'import onnxruntime\n\nsession = onnxruntime.InferenceSession("DIR/model.onnx")\n'
    '(h,) = session.run(None, {"x": x})'
)


class Pretrained(nn.Module):
    """An encoder with its projector and its preprocessing, as `load_pretrained` returns it.

    Calling it maps prepared samples to h; `embed` takes data as they are.

    Args:
        encoder, projector: the networks; no projector is None.
        view: that it was trained on, which knows the size and normalisation of images; or None.
        tokenizer: that its texts are read by; None reads bytes.
        scaling: of the features of a table that it was trained on; None where it was none.
    """

    def __init__(
        self,
        encoder: Model,
        projector: Model | None = None,
        view: Any = None,
        tokenizer: Tokenizer | None = None,
        scaling: Scaling | None = None,
    ):
        super().__init__()
        self.encoder, self.projector, self.view = encoder, projector, view
        self.tokenizer, self.scaling = tokenizer, scaling

    @property
    def d(self) -> int:
        """Dimension of h."""
        return self.encoder.d

    @property
    def preprocessing(self) -> Preprocessing:
        """Size, mean and deviation of the images it takes."""
        return Preprocessing.of(self.encoder, self.view)

    def prepare(self, images: Any) -> Tensor:
        """Return images as the tensor that the encoder takes.

        Args:
            images: (n, height, width, channels) in uint8, uint16 or floats from 0 to 1; grey ones
                become three channels, as in training.
        """
        column = as_images(np.asarray(images))
        x = torch.from_numpy(np.ascontiguousarray(column[np.arange(len(column))]))
        x = x.permute(0, 3, 1, 2)
        x = x.float() / 255 if x.dtype == torch.uint8 else x
        return x if self.view is None else self.view.plain(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)

    def embed(self, data: Any) -> Embeddings:
        """Return the embeddings of a dataset, prepared as in training.

        Args:
            data: as for `chiaroscuro.embed`.
        """
        projector = self.projector or Projector(self.d, d=None, depth=0, last="none")
        networks = Networks([self.encoder], [projector])
        return embed(networks, self.as_trained(data), views=self.view)

    def as_trained(self, data: Any) -> Dataset:
        """Return data as the encoder knows them: texts by its tokenizer, tables in its scaling.

        Args:
            data: as for `chiaroscuro.embed`.
        """
        table = open_data(data)
        if self.tokenizer is not None:
            table = dataclasses.replace(table, tokenizer=self.tokenizer)
        if self.scaling is not None and table.scaling is not None:
            table = table.scaled_by(self.scaling)
        return table


@dataclass(frozen=True)
class _Subject:
    """What is exported, whether it comes from a run or from networks."""

    encoder: Model
    projector: Model | None
    view: Any
    opened: OpenRun | None
    tokenizer: Tokenizer | None
    scaling: Scaling | None
    side: int = 0


def export(
    run: Run | OpenRun | str | os.PathLike,
    to: str,
    out: str | os.PathLike,
    licence: str = "",
    evaluation: bool = True,
    side: int = 0,
) -> Path:
    """Write the encoder of a run for another library, with its preprocessing and a model card.

        timm           `timm.create_model("local-dir:OUT", pretrained=True)`
        torchvision    `load_state_dict(load_file("OUT/model.safetensors"), strict=True)`
        transformers   `AutoModel.from_pretrained("OUT")`
        onnx           `model.onnx` with a batch of any size, compared with onnxruntime to 1e-5
        torch          `chiaroscuro.load_pretrained("OUT")`, and `model.pt2` for `torch.export.load`

    Args:
        run: a `Run`, its folder, or an `OpenRun`.
        to: one of these five.
        out: a folder that is new or empty.
        licence: licence of the weights, for the card.
        evaluation: evaluate the run for the card, beside its controls.
        side: 1 is the second encoder of a run that has two, the one for texts.
    """
    need(
        to in TARGETS,
        lambda: f"`chiaro export --to {to}` is not known; there are {', '.join(TARGETS)}.",
    )
    subject = _of_run(run, side)
    prepare = Preprocessing.of(subject.encoder, subject.view)
    usage, notes = _USAGE, ""
    files = _LIBRARIES[to](subject.encoder, prepare) if to in _LIBRARIES else None
    folder = _new_folder(out)
    if files is not None:
        files.write(folder)
        usage = files.usage
        if subject.tokenizer is not None:
            _write_tokenizer(subject.tokenizer, folder)
            imports, _, model = usage.partition("\n\n")
            length = subject.tokenizer.length
            usage = _TOKENIZER.format(imports=imports, length=length, model=model)
    elif to == "onnx":
        worst = to_onnx(subject.encoder, folder / "model.onnx", prepare.size)
        _write_json(folder / "config.json", {"library": "onnx", **_config(subject)})
        if subject.tokenizer is not None:
            _write_tokenizer(subject.tokenizer, folder / "tokenizer")
        usage, notes = _ONNX, f"Largest relative difference from torch: {worst:.1e}."
    else:
        if _is_own(subject.encoder):  # no text builds it again: the graph stands alone
            _write_json(folder / "config.json", {"library": "torch", **_config(subject)})
            usage = _PROGRAM
        else:
            _write_pretrained(subject, folder)
        worst = to_program(subject.encoder, folder / "model.pt2", prepare.size)
        notes = f"Largest relative difference of `model.pt2`: {worst:.1e}."
    _write_card(subject, folder, to, usage.replace("DIR", folder.name), licence, evaluation, notes)
    return folder


def save_pretrained(
    subject: Run | OpenRun | Pretrained | str | os.PathLike,
    folder: str | os.PathLike,
    licence: str = "",
    evaluation: bool = True,
    side: int = 0,
) -> Path:
    """Write a network so that `load_pretrained` reads it without the run.

    The folder holds `model.safetensors`, `config.json`, `settings.toml` and a model card.

    Args:
        subject: a run, its folder, or what `load_pretrained` returned.
        folder: new or empty.
        licence: licence of the weights, for the card.
        evaluation: evaluate a run for the card, beside its controls.
        side: 1 is the second encoder of a run that has two, the one for texts.
    """
    if isinstance(subject, Pretrained):
        parts = (subject.encoder, subject.projector, subject.view)
        made = _Subject(*parts, None, subject.tokenizer, subject.scaling)
    else:
        made = _of_run(subject, side)
    out = _new_folder(folder)
    _write_pretrained(made, out)
    usage = _USAGE.replace("DIR", out.name)
    _write_card(made, out, "chiaroscuro", usage, licence, evaluation, "")
    return out


def load_pretrained(folder: str | os.PathLike) -> Pretrained:
    """Load what `save_pretrained` or `export(to="torch")` wrote, in evaluation mode.

    Args:
        folder: with `config.json` and `model.safetensors`.
    """
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        need(
            (folder / name).is_file(),
            lambda name=name: f"`load_pretrained` needs `{name}`; `{folder}` has none.",
        )
    config = read_json(folder / "config.json")
    need(
        isinstance(config, dict)
        and config.get("library") == "chiaroscuro"
        and isinstance(config.get("encoder"), str)
        and all(isinstance(config.get(part), str | None) for part in ("projector", "view")),
        lambda: (
            f"`load_pretrained` needs a folder of `save_pretrained`; `{folder}` is not one. Load "
            "weights of others with `chiaroscuro.models.load_weights`."
        ),
    )
    newer(f"`{folder / 'config.json'}`", config.get("format"), PRETRAINED_FORMAT)
    with models.without_weights(folder / "transformers"):
        encoder = parse(config["encoder"], model_names())
        projector = parse(config["projector"], model_names()) if config.get("projector") else None
    view = parse(config["view"], _views()) if config.get("view") else None
    scaling = Scaling.read(config["scaling"]) if config.get("scaling") else None
    model = Pretrained(encoder, projector, view, _tokenizer(folder, config), scaling)
    models.load_weights(model, models.load_foreign(folder / "model.safetensors"), prefix="")
    return model.eval()


# ---- from a run ----


def _of_run(run: Run | OpenRun | str | os.PathLike, side: int) -> _Subject:
    opened = open_run(run)
    encoders: Any = opened.networks.encoders
    need(
        side in range(len(encoders)),
        lambda: (
            f"An export needs a side from 0 to {len(encoders) - 1}, for `{opened.name}` has "
            f"{len(encoders)} encoder{'s' * (len(encoders) > 1)}; received {side}."
        ),
    )
    encoder, projectors, view = encoders[side], opened.networks.projectors, opened.views[side]
    if not isinstance(encoder, Model):
        two = np.arange(min(2, len(opened.data)))
        encoder = Adapter(encoder, example=plain(opened.data, two, side, view))
    projector: Any = projectors[min(side, len(projectors) - 1)]
    known = projector if isinstance(projector, Model) else None
    read = opened.reading.data
    own = bool(read.tokenizer or read.text_length != DataSettings.text_length)
    texts = own and not encoder.example(1).is_floating_point()
    tokenizer = Tokenizer(read.tokenizer, read.text_length) if texts else None
    return _Subject(encoder, known, view, opened, tokenizer, opened.scaling, side)


def _tokenizer(folder: Path, config: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of a folder of `save_pretrained`."""
    length = config.get("text_length")
    if length is None:
        return None
    own = folder / "tokenizer"
    return Tokenizer(own if own.is_dir() else "", length)


def _views() -> dict[str, Any]:
    named = {name: getattr(views, name) for name in views.__all__}
    return {k: v for k, v in named.items() if isinstance(v, type) and issubclass(v, views.View)}


# ---- files ----


def _new_folder(out: str | os.PathLike) -> Path:
    folder = Path(out)
    there = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    need(
        not there and (folder.is_dir() or not folder.exists()),
        lambda: (
            f"An export needs a new or empty folder; `{folder}` "
            + (f"has {len(there)} entries, the first is `{there[0]}`." if there else "is a file.")
        ),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChiaroError(f"`{folder}` cannot be made: {error.strerror or error}.") from None
    return folder


def _is_own(encoder: Model) -> bool:
    """Return whether an encoder holds a module of the user's, which no text builds again."""
    return isinstance(encoder, Adapter) and encoder.origin is None


def _config(subject: _Subject) -> dict[str, Any]:
    encoder = subject.encoder
    return {
        "format": PRETRAINED_FORMAT,
        "encoder": repr(encoder),
        "projector": None if subject.projector is None else repr(subject.projector),
        "view": None if subject.view is None else repr(subject.view),
        "d": encoder.d,
        "preprocessing": Preprocessing.of(encoder, subject.view).as_dict(),
        "text_length": None if subject.tokenizer is None else subject.tokenizer.length,
        "scaling": None if subject.scaling is None else subject.scaling.table(),
    }


def _write_pretrained(subject: _Subject, folder: Path) -> None:
    need(
        not _is_own(subject.encoder),
        lambda: (
            "`save_pretrained` needs a network that can be built again from text; "
            f"`{subject.encoder!r}` holds a module of yours. Save its `state_dict()`, or export it "
            "to ONNX or torch."
        ),
    )
    model = Pretrained(subject.encoder, subject.projector, subject.view)
    config = {"library": "chiaroscuro", **_config(subject)}
    Files(model.state_dict(), {"config.json": config}).write(folder)
    if subject.tokenizer is not None:
        _write_tokenizer(subject.tokenizer, folder / "tokenizer")
    inner: Any = getattr(getattr(subject.encoder, "module", None), "module", None)
    if hasattr(inner, "config"):  # a network of transformers: its architecture is its own file
        inner.config.save_pretrained(folder / "transformers")


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    for name, content in tokenizer.files().items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def _write_card(
    subject: _Subject, folder: Path, to: str, usage: str, licence: str, wanted: bool, notes: str
) -> None:
    opened, objects = subject.opened, [subject.view]
    run = None if opened is None else opened.run
    if not isinstance(subject.encoder, Adapter):  # the papers of others are theirs to name
        objects.append(subject.encoder)
    settings: Mapping[str, Any] = {}
    evaluation: Mapping[str, Any] | str = "it was saved without its run."
    steps = None
    if opened is not None:
        settings = opened.settings.table()
        objects.append(opened.objective)
        records = opened.history().records
        steps = max((r["step"] for r in records if "step" in r), default=None)
        evaluation = _evaluated(opened, subject.side) if wanted else "it was not asked for."
        (folder / "settings.toml").write_text(to_toml(settings), encoding="utf-8")
    library = {"torch": "chiaroscuro"}.get(to, to)
    facts = Facts(
        title=folder.resolve().name,
        library=library,
        encoder=repr(subject.encoder),
        d=subject.encoder.d,
        n_parameters=sum(p.numel() for p in subject.encoder.parameters()),
        prepare=Preprocessing.of(subject.encoder, subject.view).as_dict(),
        n_features=0 if subject.scaling is None else len(subject.scaling.names),
        usage=usage,
        settings=settings,
        environment={} if run is None else run.environment(),
        steps=steps,
        evaluation=evaluation,
        diagnosis=None if run is None else run.diagnosis(),
        licence=licence,
        objects=tuple(one for one in objects if one is not None),
    )
    text = card(facts) + (f"\n{notes}\n" if notes else "")
    (folder / "README.md").write_text(text, encoding="utf-8")


def _evaluated(opened: OpenRun, side: int) -> Mapping[str, Any] | str:
    made = None if opened.run is None or side else opened.run.evaluation()
    if made is not None:
        return made
    try:
        made = evaluate(embed(opened, side=side), probes=["ridge"])
        if side:  # the raw input of the other side is none of its controls
            made["results"].pop("input")
        return made
    except InputError as error:  # no labels, no split, or data that are not here: said in the card
        return str(error)


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
