"""From arrays to text that a page can hold: small integers and images, in base64."""

from __future__ import annotations

import base64
import io
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chiaroscuro.errors import need

__all__ = ["blob", "coordinates", "data_url", "quoted", "readable", "sheets", "short", "stratified"]

SHEET_BYTES = 4 << 20
"""Thumbnails of all samples take at most about so many bytes; they shrink until they do."""

_HALVES = re.compile("[\ud800-\udfff]")
_TILES = 1024  # on a sheet
_LADDER = ((64, 80), (48, 80), (32, 82), (32, 65), (24, 70), (24, 50), (16, 60), (12, 50), (8, 50))
_TYPES = {"uint8": "u8", "uint16": "u16", "uint32": "u32", "float32": "f32"}


def blob(array: np.ndarray) -> dict[str, Any]:
    """Return an array as `{"type", "shape", "data"}`, little-endian in base64.

    Example:
        >>> blob(np.array([1, 258], dtype=np.uint16))
        {'type': 'u16', 'shape': [2], 'data': 'AQACAQ=='}
    """
    array = np.ascontiguousarray(array)
    kind = _TYPES.get(array.dtype.name)
    need(kind is not None, lambda: f"A page holds {', '.join(_TYPES)}; received {array.dtype}.")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(little.tobytes()).decode()
    return {"type": kind, "shape": list(array.shape), "data": data}


def coordinates(frames: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return points of all epochs in 16 bits, on one scale for both axes and all epochs.

    A point is 1/65535 of the map's side from where it should be at most. The page draws
    `low + side * q / 65535`.

    Args:
        frames: (n, 2) each.
    """
    points = np.stack(frames).astype(np.float64)  # (epochs, n, 2)
    points = np.where(np.isfinite(points), points, 0.0)
    low, high = points.min(axis=(0, 1)), points.max(axis=(0, 1))
    side = float((high - low).max()) or 1.0
    low = (low + high - side) / 2  # centred in a square
    q = np.clip(np.rint((points - low) / side * 65535), 0, 65535).astype(np.uint16)
    return {"points": blob(q), "low": low.tolist(), "side": side}


def stratified(n: int, most: int, strata: np.ndarray | None) -> np.ndarray:
    """At most so many of n rows: from each stratum its share, at least one, evenly spaced.

    Args:
        n: rows.
        most: to keep; at least the number of strata.
        strata: (n,) integers, such as labels; None is one stratum.

    Example:
        >>> stratified(8, 4, np.array([0, 0, 0, 0, 0, 0, 1, 1])).tolist()
        [0, 2, 5, 6]
    """
    need(most > 0, lambda: f"A sample needs at least 1 row; received {most}.")
    if n <= most:
        return np.arange(n)
    groups = [np.arange(n)]
    if strata is not None:
        groups_by_label = [np.flatnonzero(strata == one) for one in np.unique(strata)]
        groups = groups_by_label if len(groups_by_label) <= most else groups
    shares = np.array([len(group) * most / n for group in groups])
    counts = np.maximum(1, np.floor(shares)).astype(int)
    # the rest goes to those that lost most by rounding down; a surplus is taken from the largest
    for at in np.argsort(counts - shares, kind="stable")[: max(0, most - counts.sum())]:
        counts[at] += 1
    while counts.sum() > most:
        counts[counts.argmax()] -= 1
    taken = [
        group[np.linspace(0, len(group) - 1, count).round().astype(int)]
        for group, count in zip(groups, counts, strict=True)
    ]
    return np.sort(np.concatenate(taken))


def sheets(thumbnails: np.ndarray, budget: int = SHEET_BYTES) -> dict[str, Any]:
    """Return thumbnails as JPEG sheets of at most 1024 tiles, in order, row by row.

    The first rung of a ladder of sizes and qualities is taken that fits; an image is never
    enlarged.

    Args:
        thumbnails: (n, s, s, 3) uint8.
        budget: bytes of all sheets together.
    """
    n, s = thumbnails.shape[:2]
    rungs = [(side, quality) for side, quality in _LADDER if side <= s] or [(s, 70)]
    if rungs[0][0] != s and s <= _LADDER[0][0]:
        rungs = [(s, 82), *rungs]
    for side, quality in rungs:
        columns = math.ceil(math.sqrt(min(n, _TILES)))
        trial = _sheet(thumbnails[:_TILES], side, quality, columns)
        if len(trial) * n / min(n, _TILES) <= budget:
            break
    parts = [thumbnails[at : at + _TILES] for at in range(0, n, _TILES)]
    images = [data_url(_sheet(part, side, quality, columns), "image/jpeg") for part in parts]
    return {"side": side, "columns": columns, "tiles": _TILES, "images": images}


def _sheet(tiles: np.ndarray, side: int, quality: int, columns: int) -> bytes:
    from PIL import Image

    s = tiles.shape[1]
    rows = math.ceil(len(tiles) / columns)
    whole = np.full((rows * columns, s, s, 3), 128, np.uint8)
    whole[: len(tiles)] = tiles
    whole = whole.reshape(rows, columns, s, s, 3).transpose(0, 2, 1, 3, 4)
    picture = Image.fromarray(whole.reshape(rows * s, columns * s, 3))
    if side != s:
        picture = picture.resize((columns * side, rows * side), Image.Resampling.BOX)
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=quality, optimize=True)
    return out.getvalue()


def data_url(data: bytes, kind: str) -> str:
    """Return a file as an address that holds it."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def readable(text: str) -> str:
    """Return text that UTF-8 can hold: half of a surrogate pair becomes the replacement character.

    Such halves come from file names that are not UTF-8, and from damaged text.

    Example:
        >>> readable("caf" + chr(0xDCE9))
        'caf\ufffd'
    """
    return _HALVES.sub("\ufffd", text)


def quoted(word: str) -> str:
    """Quote a word for a shell as a person would: not at all, with single or with double quotes.

    Example:
        >>> print(quoted("runs/one"), quoted("a b"), quoted("f(stem='strided')"))
        runs/one 'a b' "f(stem='strided')"
    """
    if "'" in word and not set('"$`\\!') & set(word):
        return f'"{word}"'
    return shlex.quote(word)


def short(value: Any) -> Any:
    """Return numbers to six figures, nested; what is not finite becomes None, as JSON wants it.

    Example:
        >>> short({"a": [1 / 3, float("nan")], "b": np.float32(2)})
        {'a': [0.333333, None], 'b': 2.0}
    """
    if isinstance(value, Mapping):
        return {readable(str(key)): short(item) for key, item in value.items()}
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, list | tuple):
        return [short(item) for item in value]
    if hasattr(value, "tolist"):
        return short(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
