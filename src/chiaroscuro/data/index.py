"""A cached index: what opening a large data set learnt of it, as arrays that are mapped again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.artifacts.numpy_files import read_npy
from chiaroscuro.data.places import cache_folder
from chiaroscuro.errors import ChiaroError

__all__ = ["CACHED_FROM", "Index", "indexed"]

CACHED_FROM = 10_000
"""Rows from which on an index is kept; smaller ones are made in no time."""

FORMAT = 1
_NOTES = "notes.json"


@dataclasses.dataclass(frozen=True, eq=False)
class Index:
    """Arrays with one row per sample, and notes.

    Args:
        arrays: by name; those of a cached index are mapped from their files.
        notes: what JSON can hold.
        stamps: what the index was made of and when it changed: see `indexed`.
    """

    arrays: dict[str, NDArray[Any]]
    notes: dict[str, Any]
    stamps: list[Any]


def indexed(
    key: list[Any], rows: str, make: Callable[[], Index], stamp: Callable[[list[Any]], list[Any]]
) -> Index:
    """Return the cached index under a key if its sources have not changed, or make a new one.

    Args:
        key: names the data and the way of reading them.
        rows: the array whose length is the number of samples.
        make: makes the index, slowly.
        stamp: gives the stamps of sources as they are now, for the stamps as they were: equal ones
            mean that nothing changed.
    """
    folder = cache_folder("index") / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    kept = _load(folder)
    if kept is not None and stamp(kept.stamps) == kept.stamps:
        return kept
    fresh = make()
    if len(fresh.arrays[rows]) >= CACHED_FROM:
        _save(folder, fresh)
    return fresh


def _load(folder: Path) -> Index | None:
    """The index in a folder; None if there is none, or it is damaged: it can be made again."""
    if not folder.is_dir():
        return None
    try:
        notes = json.loads(read_regular(folder / _NOTES))
        if notes["format"] != FORMAT:
            return None
        arrays = {name: read_npy(folder / f"{name}.npy") for name in notes["arrays"]}
        return Index(arrays, notes["notes"], notes["stamps"])
    except (ChiaroError, OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _save(folder: Path, index: Index) -> None:
    """Write the index beside its place and move it there whole; failing costs the cache only."""
    try:
        work = Path(tempfile.mkdtemp(prefix=".index-", dir=folder.parent))
    except OSError:
        return
    try:
        for name, array in index.arrays.items():
            np.save(work / f"{name}.npy", array, allow_pickle=False)
        notes = {
            "format": FORMAT,
            "arrays": sorted(index.arrays),
            "notes": index.notes,
            "stamps": index.stamps,
        }
        (work / _NOTES).write_text(json.dumps(notes))
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(work, folder)
    except OSError:  # the disk is full, or another process was faster
        shutil.rmtree(work, ignore_errors=True)
