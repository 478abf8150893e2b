"""An embeddings file: plain arrays that anyone can write and open."""

from __future__ import annotations

import difflib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from chiaroscuro import figures
from chiaroscuro.artifacts import exchange
from chiaroscuro.artifacts.files import replace
from chiaroscuro.display import html_table
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["EMBEDDINGS_FORMAT", "Embeddings"]

EMBEDDINGS_FORMAT = 1
"""The `format` we write; a file without one is taken as 1."""

_VECTORS = ("h", "z", "h1", "h2", "z1", "z2")
_PAIRS = (("h1", "h2"), ("z1", "z2"))
LAYER = "layer_"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can say; a file's bytes depend on content alone
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings of n samples with their labels, ids and other fields; every field is optional.

    Args:
        h, z: outputs of encoder and projector, (n, d).
        h1, h2, z1, z2: the same for two views, row i of both from sample i.
        layers: outputs inside the encoder by name, (n, ...).
        labels, coarse_labels: (n,) integers; -1 is unlabelled. Strings as labels become integers
            with `class_names`.
        class_names: what label 0, 1, ... is called.
        prompts: a text for each class; `prompt_z`, `untrained_prompt_z`: (c, d), the projections
            that the text encoder makes of them, trained and untrained.
        factors, factor_names: (n, k) numbers that made the samples, and k names.
        split: (n,), 0 train and 1 test.
        ids, texts: (n,) identifiers (integers or strings) and strings.
        thumbnails: (n, s, s, 3) uint8.
        about: (k, 2) strings, names and values of what is known of the model, such as
            `trained_on.part`; a dictionary of strings becomes that.

    Numerics: NaN and infinity are allowed here and named by `bad_rows`.

    Example:
        >>> embeddings = Embeddings(h=np.eye(3, 2), labels=["cat", "dog", "cat"])
        >>> embeddings
        Embeddings(h=(3, 2) float64, labels=(3,) int64, class_names=(2,) <U3)
        >>> embeddings.labels.tolist(), embeddings.class_names.tolist()
        ([0, 1, 0], ['cat', 'dog'])
        >>> Embeddings(h=np.eye(3), labels=[0, 1])
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `Embeddings` needs as many rows in all arrays; received 3 in
        `h` and 2 in `labels`.
    """

    h: np.ndarray | None = None
    z: np.ndarray | None = None
    h1: np.ndarray | None = None
    h2: np.ndarray | None = None
    z1: np.ndarray | None = None
    z2: np.ndarray | None = None
    layers: Mapping[str, np.ndarray] = field(default_factory=dict)
    labels: np.ndarray | None = None
    class_names: np.ndarray | None = None
    coarse_labels: np.ndarray | None = None
    factors: np.ndarray | None = None
    factor_names: np.ndarray | None = None
    split: np.ndarray | None = None
    ids: np.ndarray | None = None
    texts: np.ndarray | None = None
    thumbnails: np.ndarray | None = None
    prompts: np.ndarray | None = None
    prompt_z: np.ndarray | None = None
    untrained_prompt_z: np.ndarray | None = None
    about: np.ndarray | Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        # frozen: what came is replaced once, by what it means
        given = self.__dict__
        if isinstance(self.about, Mapping):
            given["about"] = np.array(list(self.about.items()), dtype=str).reshape(-1, 2)
        given["layers"] = {n: _array(LAYER + n, value) for n, value in self.layers.items()}
        for name in FIELDS:
            if given[name] is not None:
                given[name] = _array(name, given[name])
        for name in ("labels", "coarse_labels", "split"):
            if given[name] is not None:
                given[name] = self._integers(name, given[name])
        self._check()

    # ---- what is here ----

    def arrays(self) -> dict[str, np.ndarray]:
        """Return every array that is here, by its name in the file."""
        layers = {LAYER + name: array for name, array in self.layers.items()}
        own = {name: getattr(self, name) for name in FIELDS}
        return {name: array for name, array in {**own, **layers}.items() if array is not None}

    def facts(self) -> dict[str, str]:
        """Return what `about` says, by name; empty where there is none.

        Example:
            >>> Embeddings(h=np.eye(2), about={"trained_on.part": "train"}).facts()
            {'trained_on.part': 'train'}
        """
        return {} if self.about is None else dict(np.asarray(self.about).tolist())

    @property
    def n(self) -> int:
        """Number of samples."""
        return next((len(a) for name, a in self.arrays().items() if name not in _NO_ROWS), 0)

    def bad_rows(self) -> dict[str, np.ndarray]:
        """Return the rows with NaN or infinity, by array; an array without any is not listed.

        Example:
            >>> Embeddings(h=np.array([[1.0], [np.nan], [np.inf]])).bad_rows()
            {'h': array([1, 2])}
        """
        bad_by_name = {}
        for name, array in self.arrays().items():
            if array.dtype.kind == "f":
                bad = _not_finite(array)
                if len(bad):
                    bad_by_name[name] = bad
        return bad_by_name

    def take(self, rows: Any) -> Embeddings:
        """Return the samples that `rows` selects: an index array, a mask or a slice."""
        kept = {
            name: array if name in _NO_ROWS else array[rows]
            for name, array in self.arrays().items()
        }
        return Embeddings(**arguments_of(kept))

    def __repr__(self) -> str:
        shown = (f"{name}={a.shape} {a.dtype}" for name, a in self.arrays().items())
        return f"Embeddings({', '.join(shown)})"

    # ---- other tools ----

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return h (or the first vectors there are): `numpy.asarray(embeddings)`."""
        return np.array(exchange.main_vectors(self), dtype=dtype, copy=copy)

    def to_pandas(self) -> Any:
        """Return a pandas `DataFrame`, one row per sample; needs `chiaroscuro[notebook]`."""
        return exchange.to_pandas(self)

    def to_parquet(self, path: str | os.PathLike) -> Path:
        """Write a parquet file for embedding viewers and `datasets`; needs `chiaroscuro[parquet]`.

        It has `embedding` (h), `label`, `text` and `image` as far as there are any:
        `embedding-atlas e.parquet --vector embedding` shows them.

        Args:
            path: ends in `.parquet`.
        """
        return exchange.to_parquet(self, path)

    def to_faiss(self, metric: str = "cosine") -> Any:
        """Return an exact index of faiss over h; needs `chiaroscuro[faiss]`.

        Args:
            metric: "cosine", "dot" or "l2".
        """
        return exchange.to_faiss(self, metric)

    def to_projector(self, folder: str | os.PathLike) -> Path:
        """Write the files of TensorBoard's projector: `tensorboard --logdir FOLDER`.

        Args:
            folder: made if need be.
        """
        return exchange.to_projector(self, folder)

    def plot(self, ax: Any = None) -> Any:
        """Draw the first two principal axes of h, coloured by label; needs `chiaroscuro[plots]`.

        Args:
            ax: matplotlib axes; None makes new ones.
        """
        x = exchange.main_vectors(self).astype(np.float64).reshape(self.n, -1)
        x = x[np.isfinite(x).all(axis=1)] if self.labels is None else x
        centred = x - x.mean(axis=0)
        plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
        plane = np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
        ax = figures.axes(ax)
        labels = np.zeros(len(x), dtype=int) if self.labels is None else self.labels
        kinds = np.unique(labels)
        for at, kind in enumerate(kinds):
            rows = labels == kind
            named = self.class_names is not None and kind >= 0
            name = str(np.asarray(self.class_names)[kind]) if named else str(kind)
            colour = figures.COLOURS[at % len(figures.COLOURS)]
            ax.scatter(*plane[rows].T, s=6, color=colour, label=name, linewidths=0)
        if 1 < len(kinds) <= 10:
            ax.legend(markerscale=2)
        ax.set_xlabel("first principal axis")
        ax.set_ylabel("second principal axis")
        return ax

    def _repr_html_(self) -> str:
        rows = [(name, a.shape, a.dtype) for name, a in self.arrays().items()]
        return html_table(f"Embeddings of {self.n:,} samples", rows, ("array", "shape", "type"))

    # ---- files ----

    def save(self, path: str | os.PathLike) -> Path:
        """Write an `.npz`, whole or not at all; equal embeddings give equal bytes.

        Args:
            path: ends in `.npz`; its folder is made if need be.
        """
        path = Path(path)
        need(
            path.suffix == ".npz",
            lambda: f"`Embeddings.save` needs a name that ends in `.npz`; received `{path.name}`.",
        )
        need(bool(self.arrays()), "`Embeddings.save` needs at least one array; received none.")
        _make(path.parent)
        replace(path, self._write)
        return path

    def _write(self, file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for name, array in {"format": np.array(EMBEDDINGS_FORMAT), **self.arrays()}.items():
                member = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
                member.external_attr = 0o644 << 16
                # three of four bytes of a string array are zeros
                text = array.dtype.kind == "U"
                member.compress_type = zipfile.ZIP_DEFLATED if text else zipfile.ZIP_STORED
                array = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
                with archive.open(member, "w", force_zip64=array.nbytes > 1 << 30) as target:
                    np.lib.format.write_array(target, array, version=(1, 0), allow_pickle=False)

    @classmethod
    def load(cls, path: str | os.PathLike, names: Mapping[str, str] | None = None) -> Embeddings:
        """Read a file of embeddings, ours or another tool's; nothing is ever unpickled.

        An `.npz`, an `.npy` as h, parquet, Arrow, `.pt`, `.safetensors`, CSV, an index of faiss, or
        a folder of shards; `artifacts.sources.KINDS` has all kinds. Large arrays of an `.npz` or
        `.npy` are mapped from the file and read when they are used.

        Args:
            path: the file. Replacing it by `save` while it is open is safe; writing into it is not.
            names: what arrays of a foreign file are here, such as `{"embeddings": "h"}`.
        """
        from chiaroscuro.artifacts.sources import open_source

        return open_source(path, names).take(None)

    # ---- checks ----

    def _integers(self, name: str, array: np.ndarray) -> np.ndarray:
        if array.dtype.kind == "U" and name == "labels" and self.class_names is None:
            names, array = np.unique(array, return_inverse=True)
            self.__dict__["class_names"] = names
        if array.dtype.kind in "fb":  # a table read from text, or a mask
            exact = bool(np.isfinite(array).all()) and bool((np.abs(array) <= 2**53).all())
            whole = array.astype(np.int64) if exact else array
            need(
                exact and bool((whole == array).all()),
                lambda: (
                    f"`{name}` needs integers; received numbers with a fraction, NaN, infinity or "
                    "more than 53 bits."
                ),
            )
            array = whole
        need(
            array.dtype.kind in "iu",
            lambda: f"`{name}` needs integers; received {array.dtype}.",
        )
        need(
            array.dtype != np.uint64 or not array.size or int(array.max()) < 2**63,
            lambda: f"`{name}` needs integers below 2^63; received {array.max()}.",
        )
        return array.astype(np.int64) if array.dtype == np.uint64 else array

    def _check(self) -> None:
        arrays = self.arrays()
        for name, array in arrays.items():
            _check_shape(name, array)
        per_sample = {name: array for name, array in arrays.items() if name not in _NO_ROWS}
        first = next(iter(per_sample), None)
        for name, array in per_sample.items():
            need(
                len(array) == len(per_sample[str(first)]),
                lambda name=name, array=array: (
                    f"`Embeddings` needs as many rows in all arrays; received "
                    f"{len(per_sample[str(first)])} in `{first}` and {len(array)} in `{name}`."
                ),
            )
        for one, other in _PAIRS:
            a, b = arrays.get(one), arrays.get(other)
            need(
                (a is None) == (b is None),
                lambda one=one, other=other: (
                    f"Two views come in pairs: `{one}` and `{other}` are needed together."
                ),
            )
            need(
                a is None or b is None or a.shape == b.shape,
                lambda one=one, other=other, a=a, b=b: (
                    f"Two views need one shape; received {a.shape} in `{one}` and {b.shape} in "
                    f"`{other}`."
                ),
            )
        self._check_names()

    def _check_names(self) -> None:
        for name in _PER_CLASS[1:]:
            array, names = getattr(self, name), self.class_names
            need(
                array is None or (names is not None and len(array) == len(names)),
                lambda name=name, array=array, names=names: (
                    f"`{name}` needs one row for each of the `class_names`; received {len(array)} "
                    f"for {0 if names is None else len(names)}."
                ),
            )
        if self.labels is not None and len(self.labels):
            low, high = int(self.labels.min()), int(self.labels.max())
            n_classes = high + 1 if self.class_names is None else len(self.class_names)
            need(
                low >= -1,
                lambda: f"`labels` needs integers from -1, which is unlabelled; received {low}.",
            )
            need(
                high < n_classes,
                lambda: (
                    f"`labels` needs integers below {n_classes}, the number of `class_names`; "
                    f"received {high}."
                ),
            )
        if self.split is not None:
            others = np.setdiff1d(self.split, (0, 1)).tolist()
            need(
                not others,
                lambda: f"`split` needs 0 (train) and 1 (test); received {others[:5]}.",
            )
        if self.factor_names is not None:
            n_names = len(self.factor_names)
            n_factors = 0 if self.factors is None else self.factors.shape[1]
            need(
                n_names == n_factors,
                lambda: (
                    f"`factor_names` needs one name per factor; received {n_names} names for "
                    f"{n_factors} factors."
                ),
            )


FIELDS = tuple(f.name for f in fields(Embeddings) if f.name != "layers")
_PER_CLASS = ("class_names", "prompts", "prompt_z", "untrained_prompt_z")
_NO_ROWS = (*_PER_CLASS, "factor_names", "about")
_NAMES = ("class_names", "factor_names", "prompts")
_STRINGS = (*_NAMES, "texts", "about")
_MATRICES = (*_VECTORS, "factors", "prompt_z", "untrained_prompt_z")
_SHAPES = {"thumbnails": 4, "about": 2, **dict.fromkeys(_MATRICES, 2)}
_KINDS = {
    **dict.fromkeys(_MATRICES, ("fiu", "numbers")),
    **dict.fromkeys(_STRINGS, ("U", "strings")),
    "thumbnails": ("u", "uint8"),
    "ids": ("iuU", "integers or strings"),
}


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:  # rows of different lengths, for one
        raise InputError(f"`{name}` needs an array; received something else: {error}.") from None
    need(
        not array.dtype.hasobject,
        lambda: (
            f"`{name}` is an array of Python objects, which no embeddings file holds; make it one "
            f"of numbers or strings, as with `np.array(values, dtype=str)`."
        ),
    )
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return array


def _check_shape(name: str, array: np.ndarray) -> None:
    layer = name.startswith(LAYER)
    kinds, wanted = ("fiu", "numbers") if layer else _KINDS.get(name, ("iu", "integers"))
    fits = array.ndim >= 2 if layer else array.ndim == _SHAPES.get(name, 1)
    dims = "at least 2" if layer else _SHAPES.get(name, 1)
    need(
        fits,
        lambda: (
            f"`{name}` needs {dims} dimensions, one row per sample; received shape {array.shape}."
            if name not in _NAMES
            else f"`{name}` needs a list of strings; received shape {array.shape}."
        ),
    )
    need(
        array.dtype.kind in kinds,
        lambda: f"`{name}` needs {wanted}; received {array.dtype}.",
    )
    need(
        name != "about" or array.shape[1] == 2,
        lambda: f"`about` needs names and values, (k, 2) strings; received shape {array.shape}.",
    )
    if name == "thumbnails":
        s = array.shape[1]
        need(
            array.dtype == np.uint8 and array.shape[1:] == (s, s, 3),
            lambda: (
                f"`thumbnails` needs square colour images (n, s, s, 3) in uint8; received "
                f"{array.shape} in {array.dtype}."
            ),
        )


def arguments_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return arrays by their names in the file, as arguments; an unknown name is refused."""
    layers = {n.removeprefix(LAYER): a for n, a in arrays.items() if n.startswith(LAYER)}
    own = {name: array for name, array in arrays.items() if not name.startswith(LAYER)}
    for name in own:
        if name not in FIELDS:
            close = difflib.get_close_matches(name.lower(), FIELDS, n=1)
            close = close or (["h"] if own[name].ndim == 2 and "h" not in own else [])
            raise InputError(
                f"`{name}` {own[name].shape} is not a name of an embeddings file"
                + (f"; did you mean `{close[0]}`?" if close else ".")
                + f" It holds any of: {', '.join(FIELDS)}, {LAYER}<name>."
            )
    return {**own, "layers": layers}


def _not_finite(array: np.ndarray) -> np.ndarray:
    bad = [
        at + np.flatnonzero(~np.isfinite(part).reshape(len(part), -1).all(axis=1))
        for at in range(0, len(array), _ROWS_AT_ONCE)
        for part in (array[at : at + _ROWS_AT_ONCE],)
    ]
    return np.concatenate(bad) if bad else np.array([], dtype=int)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChiaroError(f"`{folder}` cannot be made: {error.strerror or error}.") from None
