"""Image files and encoded bytes as uint8 arrays (h, w, 3): decoded when read, or once and kept."""

from __future__ import annotations

import functools
import importlib
import io
import os
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import fits, open_regular
from chiaroscuro.data.dataset import Column, Skipped
from chiaroscuro.data.extras import bring
from chiaroscuro.errors import ChiaroError, need

__all__ = ["EXTENSIONS", "Encodings", "Pictures", "as_images", "decode", "load_pictures"]

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")

MAX_PIXELS = 1 << 28
"""An image that claims more is refused before it is decoded: a bomb, or not for training."""

# what Pillow's decoders raise over broken bytes; anything else is our own mistake
_BROKEN = (
    *(OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError),
    *(OverflowError, ZeroDivisionError, NotImplementedError, struct.error, zlib.error),
    Warning,  # where the caller has made errors of them
)

Encoded = str | Path | bytes


def decode(encoded: Encoded, size: int | None = None) -> NDArray[np.uint8]:
    """Return the image as (h, w, 3) uint8: upright, grey repeated, transparency laid on white.

    JPEG is decoded by `simplejpeg` where it is installed (`chiaroscuro[jpeg]`), to the same
    numbers as by Pillow in about half of the time.

    Args:
        encoded: a path, or the bytes of a file.
        size: if given, the shorter side is brought to `size` (bilinear with antialiasing) and the
            middle square is kept. A JPEG of at least twice that is decoded at 1/2, 1/4 or 1/8 of
            its size first, by a smaller cosine transform: faster, and not the very numbers of
            decoding all of it and scaling it down.

    Example:
        >>> decode(b"P6 2 1 255 " + bytes(range(6))).tolist()
        [[[0, 1, 2], [3, 4, 5]]]
    """
    Image = bring("PIL.Image", "Reading images", "pillow")
    name = f"`{encoded}`" if not isinstance(encoded, bytes) else f"An image of {len(encoded)} bytes"
    try:
        encoded, fast = _by_simplejpeg(encoded, size)
        if fast is not None:
            if size is None or fast.shape == (size, size, 3):
                return fast
            return np.array(_fit(Image.fromarray(fast), size), dtype=np.uint8)
        with _source(encoded) as source, Image.open(source) as file:
            w, h = file.size
            need(
                0 < w * h <= MAX_PIXELS,
                lambda: f"{name} claims {w} x {h} pixels; at most {MAX_PIXELS} are read.",
            )
            fits(name, 4 * w * h)
            if file.format == "JPEG" and (part := _divisor(h, w, size)) > 1:
                file.draft("RGB", (w // part, h // part))
            return np.array(_fit(_rgb(file), size), dtype=np.uint8)
    except (*_BROKEN, Image.DecompressionBombError) as error:
        if isinstance(error, ChiaroError):
            raise
        unknown = isinstance(error, Image.UnidentifiedImageError)
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = "it is in no format that is known here" if unknown else reason
        raise ChiaroError(f"{name} cannot be decoded as an image: {reason}") from error


_JPEG = b"\xff\xd8\xff"
_TURNED = b"Exif\x00\x00", b"tiff:Orientation"
"""What a JPEG that is to be turned before it is upright holds somewhere."""


def _divisor(h: int, w: int, size: int | None) -> int:
    """Return the part of a JPEG's size at which to decode it, so that `size` pixels are left."""
    if size is None:
        return 1
    return next((part for part in (8, 4, 2) if min(h, w) // part >= size), 1)


def _by_simplejpeg(encoded: Encoded, size: int | None) -> tuple[Encoded, NDArray[np.uint8] | None]:
    """Return the image of a JPEG in plain colours, or None: what is unusual or damaged is Pillow's.

    Returns the bytes as well, where a file has been read.
    """
    simplejpeg = _simplejpeg()
    if simplejpeg is None:
        return encoded, None
    if not isinstance(encoded, bytes):
        with open_regular(encoded) as file:
            if file.read(len(_JPEG)) != _JPEG:
                return encoded, None
            fits(f"`{encoded}`", os.fstat(file.fileno()).st_size)
            encoded = _JPEG + file.read()
    if not encoded.startswith(_JPEG):
        return encoded, None
    try:
        h, w, colours, _ = simplejpeg.decode_jpeg_header(encoded)
        plain = colours in ("YCbCr", "Gray") and 0 < w * h <= MAX_PIXELS
        fits(f"An image of {w} x {h} pixels", 4 * w * h if plain else 0)
        if plain and not (any(mark in encoded for mark in _TURNED) and _is_turned(encoded)):
            part = _divisor(h, w, size)
            least = {} if part == 1 else {"min_height": -(-h // part), "min_width": -(-w // part)}
            return encoded, simplejpeg.decode_jpeg(encoded, colorspace="RGB", **least)
    except ValueError as error:  # damaged: Pillow says how, or reads it all the same
        if isinstance(error, ChiaroError):
            raise
    return encoded, None


def _is_turned(encoded: bytes) -> bool:
    Image = bring("PIL.Image", "Reading images", "pillow")
    with Image.open(io.BytesIO(encoded)) as file:
        return file.getexif().get(_ORIENTATION, 1) != 1


_ORIENTATION = 0x0112


@functools.cache
def _simplejpeg() -> Any:
    """Return the decoder, or None where it is not installed."""
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        return None


def _source(encoded: Encoded) -> IO[bytes]:
    """Return the bytes as a file, or the file if it is a regular one:
    a pipe would wait for ever.
    """
    return io.BytesIO(encoded) if isinstance(encoded, bytes) else open_regular(encoded)


def _rgb(file: Any) -> Any:
    ImageOps = bring("PIL.ImageOps", "Reading images", "pillow")
    Image = bring("PIL.Image", "Reading images", "pillow")
    if file.mode.startswith(("I", "F")):  # 16 bits and more: Pillow's own conversion would clip
        values = np.asarray(file, dtype=np.float64)
        top = 65535.0 if values.max(initial=0.0) > 255 else 255.0
        file = Image.fromarray(np.clip(values * (255 / top), 0, 255).astype(np.uint8))
    picture = ImageOps.exif_transpose(file)
    if picture.has_transparency_data:
        layered = picture.convert("RGBA")
        white = Image.new("RGBA", layered.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, layered)
    return picture.convert("RGB")


def _fit(picture: Any, size: int | None) -> Any:
    if size is None or picture.size == (size, size):
        return picture
    ImageOps = bring("PIL.ImageOps", "Reading images", "pillow")
    Image = bring("PIL.Image", "Reading images", "pillow")
    return ImageOps.fit(picture, (size, size), Image.Resampling.BILINEAR)


class Encodings(Protocol):
    """Paths or encoded bytes by row: a list of paths, the members of an archive, a table's
    column."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Encoded: ...


class Pictures:
    """A column of encoded images, decoded when they are read.

    An image that cannot be decoded at that moment is an error with its name: images are left out
    only when a dataset is opened, where they are counted and listed.

    Args:
        encodings: where the images are.
        size: as in `decode`; without it all images of a batch need one size, unless `mixed`.
        rows: those that count, in this order; None for all.
        mixed: a batch of several sizes is an array of objects, one array for each image.
    """

    def __init__(
        self,
        encodings: Encodings,
        size: int | None = None,
        rows: NDArray[np.int64] | None = None,
        mixed: bool = False,
    ) -> None:
        need(
            size is None or 1 <= size <= 4096,
            lambda: f"`size` needs 1 to 4096 pixels; received `{size}`.",
        )
        self.encodings = encodings
        self.size = size
        self.rows = rows
        self.mixed = mixed and size is None

    def __len__(self) -> int:
        return len(self.encodings) if self.rows is None else len(self.rows)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[Any]:
        if len(rows) == 0:
            side = self.size or 0
            return np.zeros((0, side, side, 3), np.uint8)
        images = [decode(self.encoded(int(row)), self.size) for row in rows]
        return stacked(images) if self.mixed else _stack(images)

    def encoded(self, row: int) -> Encoded:
        return self.encodings[row if self.rows is None else int(self.rows[row])]


def load_pictures(
    pictures: Pictures, names: Sequence[str], *, cache: bool = False, check: str = "decode"
) -> tuple[Column, NDArray[np.int64], tuple[Skipped, ...]]:
    """Return the column of images that can be read, their rows, and the list of the others.

    Args:
        pictures: all that were found.
        names: what to call each in the list of the skipped.
        cache: keep the decoded images in memory (n h w 3 bytes).
        check: "decode" reads every image once, so that training meets no surprise; "header" opens
            each and trusts the rest; "none" trusts all.
    """
    need(
        check in ("decode", "header", "none"),
        lambda: f"`check` needs to be `decode`, `header` or `none`; received `{check}`.",
    )
    probe = _header if check == "header" else decode

    def look(row: int) -> NDArray[np.uint8] | tuple[int, ...] | Skipped:
        try:
            seen = probe(pictures.encoded(row), pictures.size)
        except (ChiaroError, OSError) as error:
            return Skipped(names[row], str(error))
        return seen if cache and isinstance(seen, np.ndarray) else np.shape(seen)

    if check == "none" and not cache:
        return pictures, np.arange(len(pictures)), ()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        seen = list(pool.map(look, range(len(pictures))))
    skipped = tuple(one for one in seen if isinstance(one, Skipped))
    rows = np.array([i for i, one in enumerate(seen) if not isinstance(one, Skipped)], np.int64)
    good = [seen[row] for row in rows]
    if cache and check != "header":
        return _stack([one for one in good if isinstance(one, np.ndarray)]), rows, skipped
    chosen = rows if pictures.rows is None else pictures.rows[rows]
    kept = Pictures(
        pictures.encodings, pictures.size, chosen if skipped else pictures.rows, pictures.mixed
    )
    if cache:
        return kept[np.arange(len(rows))], rows, skipped
    if check == "decode" and pictures.size is None and not pictures.mixed:
        one_size({tuple(shape) for shape in good if isinstance(shape, tuple)})
    return kept, rows, skipped


CHANNELS = range(1, 14)
"""Channels that an image may have: grey, colour, and up to 13 bands of a satellite."""


def as_images(array: NDArray[Any], name: str = "images") -> Column:
    """Return the array as a column of images (n, h, w, c): channels last, grey as three.

    (n, h, w) and (n, h, w, 1) are grey, repeated to three channels without a copy; 2 to 13
    channels are as they are. Where the last dimension is no number of channels and the second is,
    channels come first. uint8 stays; uint16 is divided by 65,535 when it is read, and floats need
    to be in [0, 1]: both come as float32.

    Args:
        array: uint8, uint16 or floats.
        name: what it is called, for the sentences.

    Example:
        >>> as_images(np.zeros((5, 8, 8), np.uint8)).shape
        (5, 8, 8, 3)
        >>> as_images(np.zeros((5, 4, 16, 16), np.uint8)).shape
        (5, 16, 16, 4)
        >>> float(as_images(np.full((2, 8, 8, 13), 65535, np.uint16))[np.array([0])].max())
        1.0
    """
    kind = array.dtype
    need(
        kind == np.uint8 or kind == np.uint16 or kind.kind == "f",
        lambda: (
            f"`{name}` needs uint8, uint16 or floats in [0, 1]; received {kind}"
            + (f" from {array.min():g} to {array.max():g}" if _numeric(array) else "")
            + ". Numbers that are no images go under `x`."
        ),
    )
    if array.ndim == 3:
        array = array[..., None]
    last, first = (array.shape[-1], array.shape[1]) if array.ndim == 4 else (0, 0)
    need(
        last in CHANNELS or first in CHANNELS,
        lambda: (
            f"`{name}` needs shape (n, h, w, c), (n, c, h, w) or (n, h, w) with 1 to "
            f"{CHANNELS[-1]} channels; received {array.shape}."
        ),
    )
    if last not in (1, 3) and (first in (1, 3) or last not in CHANNELS):
        array = np.moveaxis(array, 1, -1)
    if array.shape[-1] == 1:
        array = np.broadcast_to(array, (*array.shape[:-1], 3))
    return array if kind == np.uint8 else UnitImages(array, name)


class UnitImages:
    """A column of images in uint16 or floats, given as float32 in [0, 1].

    Args:
        array: (n, h, w, c).
        name: what it is called, for the sentences.
    """

    def __init__(self, array: NDArray[Any], name: str = "images") -> None:
        self.array = array
        self.name = name
        self.top = 65535.0 if array.dtype == np.uint16 else 1.0
        self.ndim = array.ndim

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, rows: NDArray[np.int64], /) -> NDArray[np.float32]:
        images = np.ascontiguousarray(self.array[rows], np.float32)
        if self.top > 1:
            return images / np.float32(self.top)
        need(
            bool(((images >= 0) & (images <= 1)).all()),
            lambda: (
                f"`{self.name}` needs floats in [0, 1]; received {images.min():g} to "
                f"{images.max():g} in row {_outside(images, rows)}. Rescale them first, for "
                f"example `(a - a.min()) / (a.max() - a.min())`; numbers that are no images go "
                "under `x`."
            ),
        )
        return images


def _outside(images: NDArray[np.float32], rows: NDArray[np.int64]) -> int:
    inside = ((images >= 0) & (images <= 1)).reshape(len(images), -1).all(axis=1)
    return int(rows[int(np.argmin(inside))])


def _numeric(array: NDArray[Any]) -> bool:
    return array.size > 0 and array.dtype.kind in "biuf"


def _header(encoded: Encoded, size: int | None) -> tuple[int, ...]:
    Image = bring("PIL.Image", "Reading images", "pillow")
    try:
        with _source(encoded) as source, Image.open(source) as file:
            return (*file.size[::-1], 3) if size is None else (size, size, 3)
    except (*_BROKEN, Image.DecompressionBombError) as error:
        if isinstance(error, ChiaroError):
            raise
        raise ChiaroError(f"the header cannot be read: {error}") from error


def stacked(images: list[NDArray[np.uint8]]) -> NDArray[Any]:
    """Return images as one array; as an array of objects where they are of several sizes.

    Args:
        images: (h, w, c) each, at least one.
    """
    if len({image.shape for image in images}) == 1:
        return np.stack(images)
    out = np.empty(len(images), dtype=object)
    out[:] = images
    return out


def _stack(pictures: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    one_size({picture.shape for picture in pictures})
    return np.stack(pictures) if pictures else np.zeros((0, 0, 0, 3), np.uint8)


def one_size(shapes: set[tuple[int, ...]]) -> None:
    """Refuse images of several sizes."""
    listed = sorted(shapes)
    need(
        len(listed) <= 1,
        lambda: (
            f"Pictures in one batch need one size; received {len(listed)} sizes, from "
            f"{listed[0][0]} x {listed[0][1]} to {listed[-1][0]} x {listed[-1][1]}. Pass `size`, "
            "for example `folder('photos', size=64)`."
        ),
    )
