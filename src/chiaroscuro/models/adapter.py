"""Take models of other libraries: any module, and those of timm, transformers and torchvision."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from chiaroscuro.errors import ChiaroError, InputError, need
from chiaroscuro.models.model import Model, positive
from chiaroscuro.models.weights import Match, accept, load_weights, tensors_of, unread

__all__ = ["Adapter", "from_timm", "from_torchvision", "from_transformers"]

_HEADS = ("fc", "classifier", "heads", "head")
# what a module of theirs may raise over an input it does not take
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, AssertionError)


class Adapter(Model):
    """Use any module as a model: one vector per sample, of known dimension.

    An output (n, d) stays as it is; a map (n, d, height, width) is averaged over its positions and
    tokens (n, t, d) over t.

    Args:
        module: the network; it is used, not copied.
        d: its output dimension. None finds it with a forward pass on `example`, or on zeros that
            fit its first layer.
        example: samples the module takes, if its first layer does not tell.

    Example:
        >>> Adapter(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))).d
        5
    """

    own_vocabulary: int = 0
    """The size of its vocabulary, where it takes tokens of its own."""
    padding: int | None = None
    """The token that it takes for padding, where it takes tokens."""
    configured_by: str = ""
    """The name or folder of its configuration, where it is a model of transformers."""

    def __init__(self, module: nn.Module, d: int | None = None, example: Tensor | None = None):
        super().__init__()
        need(
            isinstance(module, nn.Module),
            lambda: f"`Adapter(module)` needs an `nn.Module`; received `{type(module).__name__}`.",
        )
        self.module = module
        self._example = None if example is None else example[:1].detach().clone()
        if d is None:
            d = self._probe()
        positive(self, d=d)
        self.d = d

    def forward(self, *args: Any) -> Tensor:
        try:
            h = self.module(*args)
        except (AssertionError, ValueError) as error:  # how others refuse an image of another size
            shapes = ", ".join(str(tuple(x.shape)) for x in args if isinstance(x, Tensor))
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            reason = reason.rstrip(".")
            raise InputError(
                f"`{self.origin or type(self.module).__name__}` does not take samples of shape "
                f"{shapes}: {reason}. Images are brought to a size by their view: "
                "`views.first=SimCLR(size=224)`."
            ) from error
        return _vectors(type(self.module).__name__, h)

    def example(self, n: int = 2) -> Tensor:
        if self._example is None:
            self._probe()
        return torch.cat([self._example] * n)  # type: ignore[list-item]

    def _probe(self) -> int:
        modes = {module: module.training for module in self.module.modules()}
        generator = torch.get_rng_state()
        device = next((p.device for p in self.module.parameters()), torch.device("cpu"))
        tried = []
        self.module.eval()
        try:
            for x in [self._example] if self._example is not None else _guesses(self.module):
                try:
                    with torch.no_grad():
                        h = self.module(x.to(device))
                        d = _vectors(type(self.module).__name__, h).shape[1]
                except _REFUSALS as error:
                    tried.append(f"{tuple(x.shape)}: {str(error).strip().splitlines()[0][:120]}")
                    continue
                self._example = x[:1]
                return d
        finally:
            torch.set_rng_state(generator)
            for module, mode in modes.items():
                module.training = mode
        raise InputError(
            f"`Adapter({type(self.module).__name__})` needs `d=` or an `example=` batch: its "
            f"output dimension could not be found by {len(tried)} trial inputs"
            + (f", the last of shape {tried[-1].removesuffix('.')}." if tried else ".")
        )

    def __repr__(self) -> str:
        return self.origin or f"Adapter(module=<{type(self.module).__name__}>, d={self.d})"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def _vectors(name: str, h: Any) -> Tensor:
    need(
        isinstance(h, Tensor) and h.ndim in (2, 3, 4),
        lambda: (
            f"`Adapter({name})` needs an output (n, d), (n, t, d) or "
            "(n, d, height, width); received "
            f"{tuple(h.shape) if isinstance(h, Tensor) else type(h).__name__}."
        ),
    )
    return {2: lambda: h, 3: lambda: h.mean(1), 4: lambda: h.mean((2, 3))}[h.ndim]()


def _guesses(module: nn.Module) -> Iterator[Tensor]:
    """Zeros that the first layer with a known input would take, smallest first."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            yield torch.zeros(2, part.in_features)
        elif isinstance(part, nn.Conv1d):
            yield from (torch.zeros(2, part.in_channels, side) for side in (32, 256))
        elif isinstance(part, nn.Conv2d):
            yield from (torch.zeros(2, part.in_channels, side, side) for side in (32, 64, 224))
        elif isinstance(part, nn.Embedding):
            yield from (torch.zeros(shape, dtype=torch.long) for shape in ((2, 8), (2,)))
        else:
            continue
        return


def from_torchvision(
    name: str,
    weights: str | os.PathLike | None = None,
    partial: bool = False,
    prefix: str | None = None,
) -> Adapter:
    """Return an image model of torchvision without its classifier, untrained or with weights.

    Nothing is downloaded: `weights` is a file you have, read as `load_weights` reads it.

    Args:
        name: as in `torchvision.models.list_models()`.
        weights: weights of the model, with or without its classifier.
        partial: take what fits of the weights and leave the rest as it was initialised.
        prefix: in front of the names of the file; None finds it.
    """
    models = _library("from_torchvision", name, "torchvision.models")
    _require_model("from_torchvision", name, models.list_models(module=models))
    module = models.get_model(name, weights=None, **_quiet(name))
    head = next((head for head in _HEADS if hasattr(module, head)), None)
    need(head is not None, lambda: f"`from_torchvision({name!r})` finds no classifier to remove.")
    setattr(module, str(head), nn.Identity())
    match = _read(module, weights, partial, prefix)
    adapter = Adapter(module, example=torch.zeros(2, 3, 224, 224))
    adapter.pretrained, adapter.fitted = weights is not None, match
    written = {"weights": weights, "partial": partial or None, "prefix": prefix}
    return _named(adapter, "from_torchvision", name=name, **written)


def _read(
    module: nn.Module, weights: str | os.PathLike | None, partial: bool, prefix: str | None
) -> str:
    """Set the weights of a file, unless there is none or it is not to be read; say what fitted."""
    if weights is None or unread() is not None:
        return ""
    return str(load_weights(module, weights, partial, prefix))


def _quiet(name: str) -> dict[str, bool]:
    """These two announce by a warning that their own initialisation is slow."""
    return {"init_weights": True} if name in ("googlenet", "inception_v3") else {}


def from_timm(
    name: str,
    channels: int = 3,
    weights: str | os.PathLike | None = None,
    size: int | None = None,
    partial: bool = False,
    prefix: str | None = None,
) -> Adapter:
    """Return an image model of timm without its classifier, untrained or with weights.

    Nothing is downloaded: `weights` is a file you have, read as `load_weights` reads it.

    Args:
        name: as in `timm.list_models()`.
        channels: of the input.
        weights: weights of the model, with or without its classifier.
        size: side of the images, for models that are built for one (transformers); None is timm's.
        partial: take what fits of the weights and leave the rest as it was initialised.
        prefix: in front of the names of the file; None finds it.
    """
    timm = _library("from_timm", name, "timm")
    _require_model("from_timm", name, timm.list_models())
    options = {} if size is None else {"img_size": size}
    try:
        module = timm.create_model(name, pretrained=False, in_chans=channels, **options)
    except TypeError:
        raise InputError(
            f"`from_timm({name!r}, size={size})` takes images of any size; leave `size` out."
        ) from None
    module.reset_classifier(0)
    match = _read(module, weights, partial, prefix)
    usual = tuple(getattr(module, "default_cfg", {}).get("input_size", (3, 224, 224)))[1:]
    sides = usual if size is None else (size, size)
    adapter = Adapter(module, example=torch.zeros(2, channels, *sides))
    adapter.pretrained, adapter.fitted = weights is not None, match
    written = {"weights": weights, "size": size, "partial": partial or None, "prefix": prefix}
    return _named(adapter, "from_timm", name=name, channels=channels, **written)


def from_transformers(
    name: str,
    pool: str = "mean",
    fresh: bool = False,
    weights: str | os.PathLike | None = None,
    partial: bool = False,
    size: int | None = None,
) -> Adapter:
    """Return a text or image model of transformers from a local folder or the local cache.

    A text model takes tokens (n, t) and, if there is padding, a mask that is True (or 1) at real
    tokens; without a mask, the padding token of its configuration is masked. An image model takes
    images (n, channels, height, width). Nothing is downloaded, and a folder is read only if its
    weights are in safetensors.

    Args:
        name: a folder, or a name whose files are in the cache already.
        pool: "mean" over the real tokens or over the positions of a map, or "cls", the first token.
        fresh: draw the weights instead of reading them; the folder then needs `config.json` alone.
        weights: a file to read instead of the folder's, with or without a head and a prefix.
        partial: take what fits of the weights and leave the rest as it was initialised.
        size: side of the images, to which the model interpolates its positions; None is its own.
    """
    need(
        pool in ("mean", "cls"),
        lambda: f"`from_transformers(pool={pool!r})` needs `'mean'` or `'cls'`.",
    )
    need(
        not (fresh and weights is not None),
        lambda: f"`from_transformers({name!r})` needs `fresh` or `weights`; received both.",
    )
    transformers = _library("from_transformers", name, "transformers")
    found, kept = {"local_files_only": True}, unread()
    reads, where = not fresh and kept is None, kept.configuration(name) if kept else name
    match: Match | None = None
    try:
        with without_reports(transformers):
            if weights is not None or not reads:
                config = transformers.AutoConfig.from_pretrained(where, **found)
                module = transformers.AutoModel.from_config(config)
            if reads and weights is not None:
                tensors, prefix, outside = tensors_of(module, weights)
                module, info = type(module).from_pretrained(
                    None, config=config, state_dict=tensors, **_REPORTED
                )
                match = _loaded(_without_pooler(module), info, prefix, outside)
            elif reads:
                module, info = transformers.AutoModel.from_pretrained(
                    name, use_safetensors=True, **_REPORTED, **found
                )
                match = _loaded(_without_pooler(module), info)
    except (OSError, SafetensorError) as error:
        raise _unreadable(name, error) from None
    except ChiaroError:
        raise
    except ValueError as error:
        raise InputError(
            f"`from_transformers({name!r})` cannot build it: {str(error).splitlines()[0][:200]}"
        ) from None
    if match is not None:
        accept(module, match, f"`{name if weights is None else os.fspath(weights)}`", partial)
    # files in half precision are trained in full
    adapter = _of_transformers(_without_pooler(module).float().train(fresh), pool, size)
    adapter.pretrained, adapter.fitted = not fresh, "" if match is None else str(match)
    adapter.configured_by = name
    written = {
        "fresh": fresh or None,
        "weights": weights,
        "partial": partial or None,
        "size": size,
    }
    return _named(adapter, "from_transformers", name=name, pool=pool, **written)


def _unreadable(name: str, error: Exception) -> ChiaroError:
    """Return what is wrong with the folder of a model of transformers, as an error."""
    call, folder = f"`from_transformers({name!r})`", Path(name)
    pickled = folder / "pytorch_model.bin"
    if not folder.is_dir():
        return ChiaroError(
            f"{call} finds no such model on this machine, and downloads nothing. Give a folder "
            "with `config.json` and `model.safetensors`."
        )
    if pickled.is_file() and ".safetensors" in str(error):
        return ChiaroError(
            f"{call} has no `model.safetensors`; its pickle is read, without running code, by "
            f"`weights={str(pickled)!r}`."
        )
    return ChiaroError(f"{call} cannot be read: {str(error).strip().splitlines()[0][:200]}")


_INTERPOLATE = "interpolate_pos_encoding"
# so that transformers returns what fitted, and neither draws nor refuses in silence
_REPORTED = {"output_loading_info": True, "ignore_mismatched_sizes": True}


def _without_pooler(module: Any) -> nn.Module:
    """Return the module without what none of our outputs depends on: weight decay alone would
    train it.
    """
    if getattr(module, "pooler", None) is not None and list(module.pooler.parameters()):
        module.pooler = None
    return module


def _loaded(module: nn.Module, info: Any, prefix: str = "", outside: int = 0) -> Match:
    """Return which tensors fitted, by the report of transformers."""
    children = {name for name, _ in module.named_children()}
    own = f"{getattr(module, 'base_model_prefix', '')}."
    rest = sorted(name.removeprefix(own) for name in info["unexpected_keys"])
    other_shape = sorted(entry[0] for entry in info["mismatched_keys"])
    needed = list(module.state_dict())
    missing = sorted(name for name in info["missing_keys"] if name in needed)
    return Match(
        loaded=tuple(name for name in needed if name not in (*missing, *other_shape)),
        missing=tuple(missing),
        left_over=tuple(name for name in rest if name.partition(".")[0] in children),
        other_shape=tuple(other_shape),
        head=tuple(name for name in rest if name.partition(".")[0] not in children),
        prefix=prefix,
        outside=outside,
    )


@contextlib.contextmanager
def without_reports(transformers: Any) -> Iterator[None]:
    """Silence the log and the progress bars of transformers, whose content we say ourselves."""
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _of_transformers(module: nn.Module, pool: str, size: int | None) -> Adapter:
    config: Any = module.config
    main = getattr(module, "main_input_name", "input_ids")
    two = [name for name in ("vision_model", "text_model") if hasattr(module, name)]
    kind, both = type(module).__name__, bool(getattr(config, "is_encoder_decoder", False))
    part = kind.removesuffix("Model") + "VisionModel"
    why = " and decodes" if both else ""
    if len(two) == 2:
        why = (
            ". It has one of each; save the one you need: "
            f"`transformers.{part}.from_pretrained(folder).save_pretrained(new)`"
        )
    need(
        main in ("pixel_values", "input_ids")
        and (main == "pixel_values" or hasattr(config, "hidden_size"))
        and not (len(two) == 2 or both),
        lambda: (
            f"`from_transformers` needs an encoder of images or of texts; received a `{kind}`, "
            f"which takes `{main}`{why}."
        ),
    )
    if main != "pixel_values":
        need(size is None, lambda: f"`from_transformers(size={size})` needs a model of images.")
        tokens = torch.ones(2, 8, dtype=torch.long)
        text = Adapter(_Pooled(module, pool), d=config.hidden_size, example=tokens)
        text.own_vocabulary = int(config.vocab_size)
        text.padding = getattr(config, "pad_token_id", None)
        return text
    side = getattr(config, "image_size", None) or 224
    side = side if isinstance(side, int) else side[0]
    asked = _INTERPOLATE in inspect.signature(module.forward).parameters  # else it does of itself
    example = torch.zeros(2, getattr(config, "num_channels", 3), *(size or side,) * 2)
    images = _PooledImages(module, pool, interpolates=asked and size not in (None, side))
    return Adapter(images, example=example)


class _Pooled(nn.Module):
    def __init__(self, module: nn.Module, pool: str):
        super().__init__()
        self.module, self.pool = module, pool
        self.padding: int | None = getattr(module.config, "pad_token_id", None)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            mask = torch.ones_like(tokens) if self.padding is None else tokens != self.padding
        mask = mask.long()
        states = self.module(input_ids=tokens, attention_mask=mask).last_hidden_state
        if self.pool == "cls":
            return states[:, 0]
        share = mask.to(states.dtype)
        return (states * share[:, :, None]).sum(1) / share.sum(1, keepdim=True).clamp(min=1)


class _PooledImages(nn.Module):
    def __init__(self, module: nn.Module, pool: str, interpolates: bool):
        super().__init__()
        self.module, self.pool = module, pool
        self.more = {_INTERPOLATE: True} if interpolates else {}

    def forward(self, images: Tensor) -> Tensor:
        states = self.module(pixel_values=images, **self.more).last_hidden_state
        return states[:, 0] if self.pool == "cls" and states.ndim == 3 else states


def _library(call: str, name: str, package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        raise ChiaroError(
            f"`{call}({name!r})` needs the package `{missing}`, which is not installed: "
            f"`pip install {missing}`."
        ) from None
    except (ImportError, RuntimeError, OSError) as error:  # built for another torch, mostly
        raise ChiaroError(
            f"`{call}({name!r})` needs the package `{package.partition('.')[0]}`, which is "
            f"installed but does not load: {str(error).strip().splitlines()[0][:200]}. Does it "
            f"fit torch {torch.__version__}?"
        ) from None


def _require_model(call: str, name: str, known: Iterable[str]) -> None:
    known = list(known)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        raise InputError(
            f"`{call}({name!r})` is not among its {len(known)} models"
            + (f"; did you mean `{close[0]}`?" if close else ".")
        )


def _named(adapter: Adapter, call: str, **arguments: object) -> Adapter:
    """Return the adapter, printing as the call that makes it again."""
    plain = {k: os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in arguments.items()}
    written = ", ".join(f"{k}={v!r}" for k, v in plain.items() if v is not None)
    adapter.origin = f"{call}({written})"
    return adapter
