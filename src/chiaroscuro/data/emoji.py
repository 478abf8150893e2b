"""Emoji: images with several captions each, split so that no base is on both sides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.dataset import Dataset
from chiaroscuro.data.pairs import read_pairs
from chiaroscuro.errors import InputError, need

__all__ = ["EMOJI_FILES", "is_emoji", "read_emoji"]

EMOJI_FILES = ("emoji.npz", "emoji_captions.jsonl.gz")
VENDORS = {"noto": "images", "twitter": "images_twitter"}
TEST = 0.2
"""Share of the bases of each category that are held out."""


def read_emoji(
    path: str | Path,
    vendor: str = "noto",
    size: int | None = None,
    variants: bool = True,
    held_out: str = "test",
) -> Dataset:
    """Emoji with their captions (the first is the original), their category, and a fixed split.

    Half of the images are skin-tone variants of others: `groups` is the base of each, and the
    split is by base. A fifth of the bases of each category is held out, chosen by a hash of the
    base's place in the file, the same on every machine. On the held-out side only the base itself
    is kept: five hands that differ in tone alone would make the first place a matter of luck. So
    every held-out image has its own original caption and no twin among the candidates.

    Args:
        path: the folder with `emoji.npz` and `emoji_captions.jsonl.gz`.
        vendor: "noto" or "twitter": whose drawings.
        size: images are averaged over areas down to `size` x `size`; None leaves 64 x 64.
        variants: whether the training side keeps the skin-tone variants.
        held_out: "test", or "validation": the test bases are dropped and a fifth of the *training*
            bases is held out instead, so that settings can be chosen without a look at the test.
    """
    root = Path(path)
    missing = [name for name in EMOJI_FILES if not (root / name).is_file()]
    need(not missing, lambda: f"`{root}` needs {' and '.join(missing)} to hold emoji.")
    need(
        vendor in VENDORS,
        lambda: f"`emoji(vendor)` needs {' or '.join(VENDORS)}; received `{vendor}`.",
    )
    need(
        held_out in ("test", "validation"),
        lambda: f"`emoji(held_out)` needs `test` or `validation`; received `{held_out}`.",
    )
    archive, lines = (root / name for name in EMOJI_FILES)
    data = read_pairs(lines, archive, VENDORS[vendor])
    if data.groups is None or data.labels is None:
        raise InputError(f"`{archive}` needs `base_id`, and every line of `{lines}` a `category`.")
    data = data.with_split(TEST)
    if held_out == "validation":
        data = data.part("train").with_split(TEST, seed=1)
    base = np.zeros(len(data), bool)
    base[np.unique(data.column("groups"), return_index=True)[1]] = True  # it stands before its own
    data = data.take(base | (data.column("split") == 0) if variants else base)
    rest = {name: data.column(name) for name in data.columns if name != "images"}
    images = _averaged(data.column("images"), size)
    return Dataset({"images": images, **rest}, name="emoji", class_names=data.class_names)


def is_emoji(path: Path) -> bool:
    """Return whether a folder holds both files."""
    return all((path / name).is_file() for name in EMOJI_FILES)


def _averaged(images: NDArray[np.uint8], size: int | None) -> NDArray[np.uint8]:
    """Return images of which each pixel is the rounded mean of a square of pixels."""
    n, side = images.shape[:2]
    if size is None or size == side:
        return images
    need(
        0 < size < side and side % size == 0,
        lambda: f"`emoji(size)` needs a divisor of {side}; received {size}.",
    )
    squares = images.reshape(n, size, side // size, size, side // size, 3)
    return np.rint(squares.mean(axis=(2, 4), dtype=np.float32)).astype(np.uint8)
