"""`open_data`: a dataset from a short text, for Python, the command line and TOML."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chiaroscuro.data.arrays import read_arrays
from chiaroscuro.data.cifar import CIFAR_FOLDERS, is_cifar, read_cifar
from chiaroscuro.data.dataset import Dataset
from chiaroscuro.data.digits import WanderingDigits
from chiaroscuro.data.download import OFFICIAL
from chiaroscuro.data.emoji import EMOJI_FILES, is_emoji, read_emoji
from chiaroscuro.data.folders import read_folder
from chiaroscuro.data.laws import (
    Delta,
    GeneralisedNormal,
    Laplace,
    Normal,
    Uniform,
    VonMisesFisher,
)
from chiaroscuro.data.mixings import LeakyMLP, Linear, Orthogonal
from chiaroscuro.data.mnist import DEBIAN_FASHION, is_mnist, read_mnist
from chiaroscuro.data.objects import from_object
from chiaroscuro.data.pairs import read_pairs
from chiaroscuro.data.places import VARIABLE, places
from chiaroscuro.data.processes import Process
from chiaroscuro.data.spaces import Box, Euclidean, Sphere
from chiaroscuro.data.tables import (
    read_csv,
    read_feather,
    read_hugging_face,
    read_parquet,
)
from chiaroscuro.data.tars import read_tar
from chiaroscuro.data.tasks import modular_addition
from chiaroscuro.data.text import read_text
from chiaroscuro.data.tinyimagenet import TINY_FOLDER, is_tiny_imagenet, read_tiny_imagenet
from chiaroscuro.errors import InputError, need
from chiaroscuro.spec import parse

__all__ = ["Available", "available", "is_data", "layouts", "open_data"]

_CALL = re.compile(r"\w+\s*\(.*\)", re.DOTALL)
_FILES: dict[str, Callable[..., Dataset]] = {
    ".npz": read_arrays,
    ".npy": read_arrays,
    ".jsonl": read_pairs,
    ".jsonl.gz": read_pairs,
    ".txt": read_text,
    ".txt.gz": read_text,
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".tsv": read_csv,
    ".tsv.gz": read_csv,
    ".parquet": read_parquet,
    ".feather": read_feather,
    ".arrow": read_feather,
    ".tar": read_tar,
    ".tar.gz": read_tar,
    ".tgz": read_tar,
}


@dataclasses.dataclass(frozen=True)
class Available:
    """Named dataset: its path, or None and how to get it."""

    name: str
    where: str | None
    note: str


def open_data(spec: Any) -> Dataset:
    """Open the dataset that a text names.

    A name: `digits` (bundled), `cifar10`, `cifar100`, `tiny_imagenet`, `mnist`, `fashion_mnist`,
    `emoji`, `modular_addition`, or the name of a file in the folder that `CHIARO_DATA` names,
    without its ending. A path: `.npz`, `.npy`, `.jsonl`, `.txt` (both also `.gz`), `.parquet`,
    `.tar`, or a folder of images. Shards: `a-*.tar`, `a-{000..009}.tar`, `a-*.parquet`, here or
    at an address that fsspec reads.
    A call, for what needs saying: `digits(shift=0.2)`, `folder('photos', size=64)`,
    `pairs('captions.jsonl', images='pictures.npz')`. In a call, `test=0.2` holds out that share of
    data that come without a split, by `with_split`: `arrays('mine.npz', test=0.2)`, and so
    `folder`, `text`, `pairs`, `tar`, `parquet` and `hugging_face`. A data process is its own
    notation: `Process(Box(10), content=4, style=Normal(0.3), mixing=LeakyMLP(10))`.

    Args:
        spec: the text; or a dataset, which is returned as it is; or data in memory, of any kind
            that `from_object` takes.

    Example:
        >>> len(open_data("digits(renderings=(1, 1))"))
        1797
        >>> open_data("digit")
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `digit` is not a dataset known here; did you mean
        `digits`? ...
    """
    if not isinstance(spec, str | Path):
        return from_object(spec)
    text = str(spec).strip()
    if not text:
        raise InputError("A dataset needs a name, a path or a call such as `digits(shift=0.2)`.")
    if _CALL.fullmatch(text) and not os.path.exists(text):
        made = parse(text, {**_CALLS, **_PARTS})
        need(isinstance(made, Dataset), lambda: f"`{text}` is not a dataset; put it in `Process`.")
        return made
    if text in _NAMED:
        return _NAMED[text]()
    for candidate in _candidates(text):
        if os.path.exists(candidate):
            return _open_path(candidate)
    if shard_reader := _shards_of(text):
        return shard_reader(text)
    if text in (local := _local()):
        return _open_path(local[text])
    raise InputError(_missing(text))


def _shards_of(text: str) -> Callable[[str], Dataset] | None:
    """Return what reads many files that a text names together,
    such as `a-{000..009}.tar`; or None.
    """
    if not (any(mark in text for mark in "*?[{") or "://" in text):
        return None
    readers: dict[str, Callable[[str], Dataset]] = {
        **dict.fromkeys((".tar", ".tar.gz", ".tgz"), read_tar),
        ".parquet": read_parquet,
    }
    return next((read for ending, read in readers.items() if text.endswith(ending)), None)


def is_data(text: str) -> bool:
    """Return whether a text names data: `digits`, or a call such as `digits(shift=0.2)`.

    Example:
        >>> is_data("digits"), is_data("digits()"), is_data("Gaussian(tau=0.1)")
        (True, True, False)
    """
    if not isinstance(text, str):
        return False
    call = _CALL.fullmatch(text.strip())
    name = text.strip().partition("(")[0].strip()
    return name in _CALLS if call is not None else text.strip() in _NAMED


def layouts() -> dict[str, Callable[..., Dataset]]:
    """Return the readers of data by file ending or by the name of a call such as `table()`.

    Example:
        >>> layouts()[".csv"].__name__, "digits()" in layouts()
        ('read_csv', True)
    """
    return {**_FILES, **{f"{name}()": read for name, read in _CALLS.items()}}


def available() -> list[Available]:
    """Return every dataset that has a name on this machine, the bundled one first."""
    datasets = [Available("digits", "bundled", "wandering digits: handwriting in colour, 32 x 32")]
    for name in OFFICIAL:
        where = _official_folder(name)
        note = "" if where else f"`chiaro data get {name}` downloads it"
        datasets.append(Available(name, str(where) if where else None, note))
    datasets += [Available(name, str(path), "") for name, path in sorted(_local().items())]
    return datasets


# ---- names ----


def _digits(**settings: Any) -> Dataset:
    return WanderingDigits(**settings).dataset()


# the notation checks arguments against this signature, and names the nearest on a mistake
_digits.__wrapped__ = WanderingDigits  # type: ignore[attr-defined]


def _process(*parts: Any, **settings: Any) -> Dataset:
    return Process(*parts, **settings).dataset()


_process.__wrapped__ = Process  # type: ignore[attr-defined]


def _cifar10() -> Dataset:
    return read_cifar(_official("cifar10"))


def _cifar100() -> Dataset:
    return read_cifar(_official("cifar100"))


def _tiny_imagenet(size: int | None = None, cache: bool = False) -> Dataset:
    return read_tiny_imagenet(_official("tiny_imagenet"), size, cache)


def _mnist() -> Dataset:
    return read_mnist(_official("mnist"))


def _fashion_mnist() -> Dataset:
    return read_mnist(_official("fashion_mnist"), fashion=True)


def _emoji(
    vendor: str = "noto", size: int | None = None, variants: bool = True, held_out: str = "test"
) -> Dataset:
    folder = next((place for place in places() if is_emoji(place)), None)
    if folder is None:
        listed = ", ".join(f"`{place}`" for place in places())
        raise InputError(
            f"`emoji` is not on this machine; it needs {' and '.join(EMOJI_FILES)}, and nothing "
            f"fetches them. Looked in {listed}; `{VARIABLE}` may name another folder."
        )
    return read_emoji(folder, vendor, size, variants, held_out)


_NAMED: dict[str, Callable[..., Dataset]] = {
    "digits": _digits,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "tiny_imagenet": _tiny_imagenet,
    "mnist": _mnist,
    "fashion_mnist": _fashion_mnist,
    "emoji": _emoji,
    "modular_addition": modular_addition,
}
_HOMES: dict[str, tuple[tuple[str, ...], Callable[[Path], bool]]] = {
    "cifar10": ((*CIFAR_FOLDERS["cifar10"], "cifar10"), is_cifar),
    "cifar100": ((*CIFAR_FOLDERS["cifar100"], "cifar100"), is_cifar),
    "tiny_imagenet": ((TINY_FOLDER, "tiny_imagenet"), is_tiny_imagenet),
    "mnist": (("mnist", "MNIST/raw"), is_mnist),
    "fashion_mnist": (("fashion_mnist", "fashion-mnist", "FashionMNIST/raw"), is_mnist),
}


def _official_places(name: str) -> list[Path]:
    tried = [place / folder for place in places() for folder in _HOMES[name][0]]
    return [*tried, DEBIAN_FASHION] if name == "fashion_mnist" else tried


def _official_folder(name: str) -> Path | None:
    return next((path for path in _official_places(name) if _HOMES[name][1](path)), None)


def _official(name: str) -> Path:
    folder = _official_folder(name)
    if folder is None:
        listed = ", ".join(f"`{path}`" for path in _official_places(name))
        debian = " or install Debian's `dataset-fashion-mnist`" * (name == "fashion_mnist")
        raise InputError(
            f"`{name}` is not on this machine; looked for {listed}. Fetch it with "
            f"`chiaro data get {name}`{debian}, or let `{VARIABLE}` name the folder it is in."
        )
    return folder


# ---- paths ----


def _local() -> dict[str, Path]:
    """Files and folders in the places, by name without ending; the first place wins."""
    taken = {folder.split("/")[0] for folders, _ in _HOMES.values() for folder in folders}
    paths: dict[str, Path] = {}
    for place in reversed(places()):
        if not place.is_dir():
            continue
        for path in sorted(place.iterdir(), reverse=True):
            ending = _ending(path)
            if path.is_file() and ending:
                paths[path.name.removesuffix(ending)] = path
            elif path.is_dir() and not path.name.startswith(".") and path.name not in taken:
                paths[path.name] = path
    named = set(_NAMED) - {"emoji"}  # which is listed where its files are
    return {name: path for name, path in paths.items() if name not in named}


def _ending(path: Path) -> str | None:
    name = path.name.lower()
    return next((end for end in sorted(_FILES, key=len, reverse=True) if name.endswith(end)), None)


def _candidates(text: str) -> list[Path]:
    path = Path(text).expanduser()
    pathlike = (
        "/" in text or "\\" in text or _ending(path) is not None or text.startswith((".", "~"))
    )
    if path.is_absolute():
        return [path]
    inside = [place / text for place in places()] if pathlike else []
    # a bare word means a folder here only if nothing else has that name
    return [path, *inside] if pathlike or text not in _local() else []


def _open_path(path: Path) -> Dataset:
    if path.is_dir():
        return _open_folder(path)
    ending = _ending(path)
    if ending is None:
        raise InputError(
            f"`{path}` ends in nothing that can be read; these can: {', '.join(_FILES)}."
        )
    return _FILES[ending](path)


def _open_folder(path: Path) -> Dataset:
    if is_cifar(path):
        return read_cifar(path)
    if is_mnist(path):
        return read_mnist(path, fashion="fashion" in str(path).lower())
    if is_tiny_imagenet(path):
        return read_tiny_imagenet(path)
    if (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file():
        return read_hugging_face(path)
    if any(path.glob("*.tar")) or any(path.glob("*.tar.gz")):
        return read_tar(path)
    if any(path.glob("*.parquet")):
        return read_parquet(path)
    return read_folder(path)


def _located(read: Callable[..., Dataset]) -> Callable[..., Dataset]:
    """Return the reader with its path looked for in all places, and with `test`, a share to hold
    out.
    """

    @functools.wraps(read)
    def located(path: str, *arguments: Any, test: float | None = None, **settings: Any) -> Dataset:
        there = next((one for one in _candidates(f"./{path}") if one.exists()), None)
        data = read(there or path, *arguments, **settings)  # shards may be a pattern, an address
        if test is None:
            return data
        need(
            data.split is None,
            lambda: (
                f"`test={test}` is for data without a split; `{data.name}` has one, with "
                f"{len(data.part('test'))} of {len(data)} rows held out."
            ),
        )
        return data.with_split(test)

    # the notation checks arguments against this signature
    known = dict(inspect.signature(read).parameters)
    known.setdefault(
        "test", inspect.Parameter("test", inspect.Parameter.KEYWORD_ONLY, default=None)
    )
    located.__signature__ = inspect.Signature(list(known.values()))  # type: ignore[attr-defined]
    return located


def _read_table(
    path: str | Path,
    labels: str | None = None,
    drop: Sequence[str] = (),
    text: str | None = None,
    image: str | None = None,
    standardise: bool = True,
    size: int | None = None,
    outside: bool = False,
) -> Dataset:
    """Read a table by the ending of its name: CSV, TSV, parquet or feather."""
    ending = _ending(Path(path)) or ""
    tables = {e: r for e, r in _FILES.items() if r in (read_csv, read_parquet, read_feather)}
    need(
        ending in tables,
        lambda: f"`table('{path}')` needs a file that ends in {', '.join(tables)}.",
    )
    return tables[ending](
        path,
        labels=labels,
        drop=drop,
        text=text,
        image=image,
        standardise=standardise,
        size=size,
        outside=outside,
    )


_CALLS: dict[str, Callable[..., Dataset]] = {
    **_NAMED,
    "arrays": _located(read_arrays),
    "folder": _located(read_folder),
    "text": _located(read_text),
    "pairs": _located(read_pairs),
    "tar": _located(read_tar),
    "table": _located(_read_table),
    "csv": _located(read_csv),
    "feather": _located(read_feather),
    "parquet": _located(read_parquet),
    "hugging_face": _located(read_hugging_face),
    "Process": _process,
}
_PARTS: dict[str, Callable[..., Any]] = {
    part.__name__: part
    for part in (
        *(Box, Sphere, Euclidean),
        *(Delta, Uniform, Normal, Laplace, GeneralisedNormal, VonMisesFisher),
        *(Linear, Orthogonal, LeakyMLP),
    )
}
"""What a `Process` is made of."""


def _missing(text: str) -> str:
    candidates = _candidates(text)
    if "/" in text or _ending(Path(text)) is not None:
        looked = ", ".join(f"`{path}`" for path in candidates)
        hint = "" if len(candidates) > 2 else f" `{VARIABLE}` may name a folder to look in."
        return f"`{text}` does not exist; looked for {looked}.{hint}"
    names = list(dict.fromkeys([*_NAMED, *_local()]))
    close = difflib.get_close_matches(text.lower(), names, n=1, cutoff=0.5)
    nearest = f"; did you mean `{close[0]}`?" if close else "."
    return (
        f"`{text}` is not a dataset known here{nearest} Known are {', '.join(names)}; or give a "
        f"path to {', '.join(_FILES)} or a folder of images. Looked in "
        f"{', '.join(f'`{place}`' for place in places())}."
    )
