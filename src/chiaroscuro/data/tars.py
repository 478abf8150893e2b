"""Tar archives in the format of webdataset: files that share a key are one sample.

`a/0001.jpg`, `a/0001.txt` and `a/0001.cls` are the image, the text and the class of sample
`a/0001`. An archive is indexed once and then any sample is read at once. An archive that does not
end as one must is refused: what is missing would be lost without a word.
"""

from __future__ import annotations

import functools
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.artifacts.bounded import open_regular
from chiaroscuro.data.arrays import numbered
from chiaroscuro.data.dataset import Column, Dataset, Skipped
from chiaroscuro.data.extras import bring
from chiaroscuro.data.index import Index, indexed, shared
from chiaroscuro.data.order import Blocks
from chiaroscuro.data.pictures import EXTENSIONS, Pictures, load_pictures, one_size
from chiaroscuro.data.shards import Shard, ask_together, shards
from chiaroscuro.data.text import Strings
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["StrictHeader", "read_tar", "tar_samples", "write_tars"]

TEXT_KEYS = ("captions", "texts", "caption", "text")
MAX_NOTE = 16 << 20
"""Bytes of a text, class or json of one sample."""

_PICTURE = tuple(extension[1:] for extension in EXTENSIONS)
_NOTES = ("txt", "cls", "json")
_LONG = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_MAX_LONG = 1 << 20
_BROKEN = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError)

Note = dict[str, Any]


def read_tar(
    path: str | Path,
    size: int | None = None,
    cache: bool = False,
    check: str = "decode",
    buffer: int | None = None,
    texts: bool = True,
) -> Dataset:
    """Read samples from tar archives in WebDataset's layout, with random access.

    Images (`.jpg`, `.png`, ...) are decoded when a batch asks for them; `.txt` is the text, `.cls`
    the label, `.json` may hold `caption`, `captions`, `text` and `label`. A sample without an image
    or with a broken one is skipped and listed; one without a label has the label -1. What opening
    learns of 10,000 samples or more is kept in the user's cache, until an archive changes.

    Compressed archives and those on another machine (through fsspec) are copied into the user's
    cache when they are needed, and an epoch then goes archive by archive: see `BlockOrder`.

    Args:
        path: see `shards`.
        size, cache, check: as for a folder of images.
        buffer: go archive by archive, shuffling among this many samples; None does so only for
            archives that are copied, with 4096.
        texts: whether to read the texts; if so, all samples need one or none.
    """
    parts = shards(path)
    ask_together(parts)
    index = indexed(
        ["tar", [part.place for part in parts], size, check],
        "start",
        lambda: _index(path, parts, size, check),
        lambda _: [part.stamp() for part in parts],
    )
    arrays, notes = index.arrays, index.notes
    skipped = tuple(Skipped(*one) for one in notes["skipped"])
    members = _Members(parts, arrays["shard"], arrays["start"], arrays["length"])
    images: Column = Pictures(members, size)
    if cache:
        images = images[np.arange(len(images))]
    columns: dict[str, Column] = {
        "images": images,
        "ids": Strings(arrays["keys"], arrays["key_ends"]),
    }
    if "caption_ends" in arrays and texts:
        n_without = notes["without_text"]
        need(
            n_without == 0,
            lambda: (
                f"{n_without} of {len(members)} samples of `{path}` have no text, the first is "
                f"`{notes['first_without_text']}`. Add texts, or pass `texts=False` to read the "
                "images alone."
            ),
        )
        captions = arrays["captions"], arrays["caption_ends"]
        columns["texts"] = Strings(*captions, _first)
        columns["captions"] = Strings(*captions, _all)
    if "labels" in arrays:
        columns["labels"] = arrays["labels"]
    blocks = None
    if buffer is not None or any(part.is_copied for part in parts):
        # samples are in the order of their archives: nothing else of the index is read
        ends = np.searchsorted(arrays["shard"], np.arange(len(parts)), side="right")
        sizes = np.diff(ends, prepend=0).astype(np.int64)
        blocks = Blocks(sizes[sizes > 0], buffer or 4096)
    name = str(path).rstrip("/").rpartition("/")[2].split(".")[0].split("{")[0] or "tar"
    classes = tuple(notes["class_names"])
    return Dataset(columns, name, classes, skipped=skipped, blocks=blocks)


def tar_samples(path: str | Path) -> Iterator[dict[str, Any]]:
    """Give the samples of one archive in its order: `{"__key__": ..., "jpg": bytes, ...}`.

    Nothing is written to disk, so a name like `../x` is a key like any other. A link or a device is
    refused: what it stands for is not in the archive's sample.
    """
    shard = Shard(str(path))
    with shard.read(open_regular) as opened, shard.read(open_regular) as file:
        for key, fields in _grouped(opened, str(path)):
            need(
                _LINK not in fields.values(),
                lambda fields=fields, key=key: (
                    f"Sample `{key[:80]}` of `{path}`: {_linked(fields)}."
                ),
            )
            sample: dict[str, Any] = {"__key__": key}
            for kind, (start, length) in fields.items():
                file.seek(start)
                sample[kind] = file.read(length)
            yield sample


def write_tars(data: Dataset, out: str | Path, samples: int = 1000, quality: int = 0) -> list[Path]:
    """Write images, texts and labels of a dataset as archives that `webdataset` reads too.

    Args:
        data: with `images` in uint8; `texts` or `captions`, and `labels`, are written if there.
        out: a folder, made if need be; its archives are called `shard-000000.tar` and so on.
        samples: of one archive.
        quality: of JPEG, 1 to 95; 0 writes PNG, which loses nothing.

    Example:
        >>> import tempfile
        >>> data = Dataset({"images": np.zeros((3, 4, 4, 3), np.uint8), "labels": np.arange(3)})
        >>> folder = tempfile.mkdtemp()
        >>> [path.name for path in write_tars(data, folder, samples=2)]
        ['shard-000000.tar', 'shard-000001.tar']
        >>> read_tar(folder).labels.tolist()
        [0, 1, 2]
    """
    need(samples >= 1, lambda: f"`write_tars(samples={samples})` needs at least 1 an archive.")
    need(
        "images" in data.columns,
        lambda: f"`write_tars` needs images; `{data.name}` has {', '.join(data.columns)}.",
    )
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for first in range(0, len(data), samples):
        path = folder / f"shard-{first // samples:06d}.tar"
        rows = np.arange(first, min(first + samples, len(data)))
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            batch = data[rows]
            for at, row in enumerate(rows.tolist()):
                sample = {name: values[at] for name, values in batch.items()}
                for kind, content in _files(sample, quality).items():
                    member = tarfile.TarInfo(f"{row:09d}.{kind}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        paths.append(path)
    return paths


def _files(sample: dict[str, Any], quality: int) -> dict[str, bytes]:
    """Return the files of one sample by their ending."""
    Image = bring("PIL.Image", "Writing images", "pillow")
    need(
        sample["images"].dtype == np.uint8 and sample["images"].shape[-1] == 3,
        lambda: (
            "`write_tars` needs images of three channels in uint8; received "
            f"{sample['images'].shape} in {sample['images'].dtype}."
        ),
    )
    encoded = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(sample["images"]))
    if quality:
        image.save(encoded, "JPEG", quality=quality)
    else:
        image.save(encoded, "PNG")
    files = {"jpg" if quality else "png": encoded.getvalue()}
    if "captions" in sample:
        files["json"] = json.dumps({"captions": list(sample["captions"])}).encode()
    elif "texts" in sample:
        files["txt"] = str(sample["texts"]).encode()
    if "labels" in sample and int(sample["labels"]) >= 0:
        files["cls"] = str(int(sample["labels"])).encode()
    return files


# ---- the index ----


def _index(path: str | Path, parts: list[Shard], size: int | None, check: str) -> Index:
    """Scan all archives, on several ranks each rank some; then put together what was found."""
    scans = shared(
        ["scan", [part.stamp() for part in parts], size, check],
        [functools.partial(_scan, part, size, check) for part in parts],
    )
    seen = sum(scan["seen"] for scan in scans)
    skipped = [tuple(one) for scan in scans for one in scan["skipped"]]
    counts = [len(scan["keys"]) for scan in scans]
    n_images = sum(scan["images"] for scan in scans)
    need(
        n_images > 0,
        lambda: f"`{path}` holds no sample with an image; {seen} samples without were seen.",
    )
    need(
        sum(counts) > 0,
        lambda: (
            f"None of the {n_images} images of `{path}` can be read; the first, `{skipped[0][0]}`: "
            f"{skipped[0][1]}"
        ),
    )
    one_size({tuple(scan["shape"]) for scan in scans if scan["shape"]})
    places = np.array([place for scan in scans for place in scan["places"]], np.int64)
    arrays = {
        "shard": np.repeat(np.arange(len(parts), dtype=np.int32), counts),
        "start": places[:, 0],
        "length": places[:, 1],
    }
    keys = [key for scan in scans for key in scan["keys"]]
    arrays["keys"], arrays["key_ends"] = Strings.packed(keys)
    notes: list[Note] = [note for scan in scans for note in scan["notes"]]
    without = [key for key, note in zip(keys, notes, strict=True) if "captions" not in note]
    if len(without) < len(keys):
        captions = (json.dumps(note.get("captions", [""])) for note in notes)
        arrays["captions"], arrays["caption_ends"] = Strings.packed(captions)
    class_names: tuple[str, ...] = ()
    if any("labels" in note for note in notes):
        arrays["labels"], class_names = _labels(notes)
    facts = {
        "skipped": skipped,
        "class_names": class_names,
        "without_text": len(without),
        "first_without_text": next(iter(without), ""),
    }
    return Index(arrays, facts, [part.stamp() for part in parts])


def _scan(part: Shard, size: int | None, check: str) -> dict[str, Any]:
    """Return what one archive holds, as JSON can; with `check`, every image is decoded once."""
    with part.read(open_regular) as opened, part.read(open_regular) as file:
        samples = list(_samples(opened, file, part))
    skipped = [[f"{part.name}:{key}", reason] for key, _, _, reason in samples if reason]
    good = [(key, place, note) for key, place, note, reason in samples if not reason]
    places = np.array([place for _, place, _ in good], np.int64).reshape(len(good), 2)
    pictures = Pictures(_Members([part], np.zeros(len(good), np.int32), *places.T), size)
    names = [f"{part.name}:{key}" for key, *_ in good]
    column, rows, broken = load_pictures(pictures, names, check=check)
    looked = check == "decode" and size is None and len(rows) > 0
    return {
        "seen": len(samples),
        "images": len(good),
        "skipped": skipped + [[one.path, one.reason] for one in broken],
        "shape": list(column[np.array([0])].shape[1:]) if looked else None,
        "places": places[rows].tolist(),
        "keys": [good[row][0] for row in rows],
        "notes": [good[row][2] for row in rows],
    }


def _samples(
    opened: BinaryIO, file: BinaryIO, part: Shard
) -> Iterator[tuple[str, tuple[int, int], Note, str]]:
    """Give key, place of the image, notes, and "" or why it is left out, of each sample."""
    for key, fields in _grouped(opened, part.where):
        place = next((fields[kind] for kind in fields if kind in _PICTURE), None)
        try:
            known = {kind: fields[kind] for kind in fields if kind in (*_PICTURE, *_NOTES)}
            if _LINK in known.values():
                raise InputError(_linked(known))
            if place is None:
                raise InputError(f"no image among {sorted(fields)[:8]}")
            yield key, place, _notes(file, fields), ""
        except ChiaroError as error:
            yield key, _LINK, {}, str(error)


def _labels(notes: list[Note]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """One number a sample: those given, or those of the words given; -1 where there is none."""
    given = np.array([at for at, note in enumerate(notes) if "labels" in note])
    values = [notes[at]["labels"] for at in given]
    words = any(isinstance(value, str) for value in values)
    column = np.array([str(value) for value in values]) if words else np.array(values, np.int64)
    out = np.full(len(notes), -1, np.int64)
    out[given], names = numbered("labels", column)
    return out, names


class _Members:
    """The bytes of archive members by row; the archive is opened for each, so that workers share
    nothing."""

    def __init__(
        self,
        parts: list[Shard],
        shard: NDArray[np.integer],
        start: NDArray[np.int64],
        length: NDArray[np.int64],
    ) -> None:
        self.parts, self.shard, self.start, self.length = parts, shard, start, length

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, row: int, /) -> bytes:
        part = self.parts[int(self.shard[row])]
        with part.read(open_regular) as file:
            file.seek(int(self.start[row]))
            content = file.read(int(self.length[row]))
        need(
            len(content) == int(self.length[row]),
            lambda: f"`{part.where}` was cut short after it was opened.",
        )
        return content


# ---- archives ----


class StrictHeader(tarfile.TarInfo):
    """A header of which damage is an error: Python's own reader takes it for the end."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> StrictHeader:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in _LONG and header.size > _MAX_LONG):
            raise tarfile.ReadError(f"a header says {header.size} bytes")
        return header

    @classmethod
    def fromtarfile(cls, archive: Any) -> StrictHeader:
        at = archive.fileobj.tell()
        try:
            header = super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            _closed(archive.fileobj, at)
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"the header at byte {at:,} is damaged: {error}") from None
        if header.size < 0 or archive.offset <= at:  # size and names may come from a second header
            raise tarfile.ReadError(f"the header at byte {at:,} says {header.size} bytes")
        return header


def _closed(file: Any, at: int) -> None:
    """Refuse an archive in which anything but zeros follows its first closing block."""
    place = at + tarfile.BLOCKSIZE
    chunk = file.read(tarfile.BLOCKSIZE)
    if len(chunk) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError(f"it ends at byte {place:,} with one closing block of two")
    while chunk:
        if chunk.strip(b"\0"):
            behind = place + len(chunk) - len(chunk.lstrip(b"\0"))
            raise tarfile.ReadError(
                f"its closing zeros begin at byte {at:,} and more follows at byte {behind:,}; a "
                "header was erased, or two archives were written into one file"
            )
        place += len(chunk)
        chunk = file.read(1 << 20)


Fields = dict[str, tuple[int, int]]
_LINK = (-1, 0)
"""The place of a member that has no contents of its own: a link, a device or a pipe."""


def _linked(fields: Fields) -> str:
    kind = next(kind for kind, place in fields.items() if place == _LINK)
    return f"its `{kind[:40]}` is a link, a device or a pipe, which are not followed"


def _grouped(opened: BinaryIO, said: str) -> Iterator[tuple[str, Fields]]:
    """Neighbouring files of one key: where each kind begins in the archive, and its length."""
    key, fields = "", Fields()
    try:
        with tarfile.open(fileobj=opened, mode="r:", tarinfo=StrictHeader) as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined] # ours are kept elsewhere, in an eighth of the memory
                folder, slash, name = member.name.rpartition("/")
                stem, _, kind = name.partition(".")
                described = not folder and name.startswith("__") and name.endswith("__")
                if member.isdir() or not stem or not kind or described:
                    continue
                if member.issparse():
                    raise tarfile.ReadError(f"`{member.name[:80]}` is a sparse file")
                mine, kind = f"{folder}{slash}{stem}", kind.lower()
                if fields and (mine != key or kind in fields):
                    yield key, fields
                    fields = {}
                key = mine
                place = (member.offset_data, member.size)
                fields[kind] = place if member.isfile() else _LINK
        if fields:
            yield key, fields
    except _BROKEN as error:
        if isinstance(error, ChiaroError):
            raise
        raise InputError(f"`{said}` cannot be read as a tar archive: {error}.") from error


def _notes(file: BinaryIO, fields: Fields) -> Note:
    """Texts and label of a sample."""
    content = {kind: _note(file, *fields[kind]) for kind in _NOTES if kind in fields}
    note: Note = {}
    if "json" in content:
        try:
            record = json.loads(content["json"])
        except (ValueError, RecursionError) as error:
            raise InputError(f"its json is damaged: {str(error)[:200]}") from None
        if not isinstance(record, dict):
            raise InputError("its json is no object")
        texts: Any = next((record[key] for key in TEXT_KEYS if key in record), [])
        texts = [texts] if isinstance(texts, str) else texts
        if isinstance(texts, list) and texts and all(_encodes(text) for text in texts):
            note["captions"] = tuple(texts)
        if type(record.get("label")) is int or isinstance(record.get("label"), str):
            note["labels"] = record["label"]
    try:
        if "txt" in content:
            note["captions"] = (content["txt"].decode().strip(),)
        if "cls" in content:
            note["labels"] = int(content["cls"])
    except ValueError as error:
        raise InputError(f"its text or class is damaged: {str(error)[:200]}") from None
    if isinstance(note.get("labels"), int):
        need(
            -1 <= note["labels"] < 2**63,
            lambda: f"its label needs to be -1 or more and below 2^63; it is {note['labels']}",
        )
    return note


def _first(captions: str) -> str:
    return json.loads(captions)[0]


def _all(captions: str) -> tuple[str, ...]:
    return tuple(json.loads(captions))


def _encodes(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _note(file: BinaryIO, start: int, length: int) -> bytes:
    need(
        length <= MAX_NOTE,
        lambda: f"a text, class or json has {length:,} bytes; at most {MAX_NOTE:,} are read",
    )
    file.seek(start)
    return file.read(length)
