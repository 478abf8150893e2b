"""Tar archives in the manner of webdataset: files that share a key are one sample.

`a/0001.jpg`, `a/0001.txt` and `a/0001.cls` are the picture, the text and the class of sample
`a/0001`. `read_tar` indexes archives on disk and reads any sample at once; `TarStream` reads from
beginning to end, as one must where seeking is slow or the archive is compressed.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chiaroscuro.data.counter import words
from chiaroscuro.data.dataset import Batch, Column, Dataset, Skipped, batch_of_objects
from chiaroscuro.data.pictures import EXTENSIONS, Pictures, decode, load_pictures
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["TarStream", "read_tar", "shards", "tar_samples"]

TEXT_KEYS = ("captions", "texts", "caption", "text")
MAX_SHARDS = 100_000
_PICTURE = tuple(extension[1:] for extension in EXTENSIONS)
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_BROKEN = (tarfile.TarError, EOFError, zlib.error, OSError)

Sample = dict[str, Any]


def shards(spec: str | Path) -> list[Path]:
    """The archives that a text names, sorted: a file, a folder of them, `a-{000..009}.tar`,
    `a-*.tar`.

    Example:
        >>> [path.name for path in shards("a-{08..10}.tar")]
        ['a-08.tar', 'a-09.tar', 'a-10.tar']
    """
    if Path(spec).is_dir():
        found = sorted(Path(spec).glob("*.tar"))
        need(bool(found), lambda: f"`{spec}` holds no `.tar`.")
        return found
    names = [str(spec)]
    while match := _RANGE.search(names[0]):
        low, high = match.groups()
        count = (int(high) - int(low) + 1) * len(names)
        need(
            0 < count <= MAX_SHARDS,
            lambda count=count: f"`{spec}` names {count} archives; 1 to {MAX_SHARDS} are read.",
        )
        filled = [str(i).zfill(len(low)) for i in range(int(low), int(high) + 1)]
        names = [_RANGE.sub(number, name, count=1) for name in names for number in filled]
    if any(mark in names[0] for mark in "*?["):
        names = sorted(path for name in names for path in glob.glob(name))
        need(bool(names), lambda: f"`{spec}` matches no file.")
    return [Path(name) for name in names]


def tar_samples(path: str | Path) -> Iterator[Sample]:
    """The samples of one archive in its order: `{"__key__": ..., "jpg": bytes, "txt": bytes}`.

    Only regular files are looked at; nothing is written to disk, so a name like `../x` is a key
    like any other.
    """
    for key, fields in _grouped(Path(path), "r|*"):
        yield {"__key__": key, **{kind: content for kind, (content, _) in fields.items()}}


def read_tar(
    path: str | Path, size: int | None = None, cache: bool = False, check: str = "decode"
) -> Dataset:
    """The samples of uncompressed archives as a data set with random access.

    Pictures (`.jpg`, `.png`, ...) are read when a batch asks for them; `.txt` is the text, `.cls`
    the label, `.json` may hold `caption`, `captions`, `text`, `label` and `id`. A sample without a
    picture or with a broken one is skipped and listed.

    Args:
        path: see `shards`.
        size, cache, check: as for a folder of pictures.
    """
    found: list[tuple[str, Path, int, int]] = []
    notes: list[Sample] = []
    skipped: list[Skipped] = []
    for shard in shards(path):
        for key, fields in _grouped(shard, "r:"):
            member = next((fields[kind][1] for kind in fields if kind in _PICTURE), None)
            if member is None:
                skipped.append(Skipped(f"{shard.name}:{key}", f"no picture among {sorted(fields)}"))
                continue
            try:
                notes.append(_notes(fields))
            except ChiaroError as error:
                skipped.append(Skipped(f"{shard.name}:{key}", str(error)))
                continue
            found.append((key, shard, *member))
    need(
        bool(found),
        lambda: (
            f"`{path}` holds no sample with a picture; {len(skipped)} samples without were seen."
        ),
    )
    members = _Members([(shard, start, length) for _, shard, start, length in found])
    names = [f"{shard.name}:{key}" for key, shard, _, _ in found]
    images, rows, broken = load_pictures(Pictures(members, size), names, cache=cache, check=check)
    need(len(rows) > 0, lambda: f"None of the {len(found)} pictures of `{path}` can be read.")
    columns: dict[str, Column] = {
        "images": images,
        "ids": batch_of_objects(found[row][0] for row in rows),
    }
    kept = [notes[row] for row in rows]
    columns |= _columns(kept)
    return Dataset(columns, Path(path).name.split(".")[0], skipped=(*skipped, *broken))


@dataclasses.dataclass(eq=False)
class TarStream:
    """Archives read from beginning to end, shuffled in passing.

    Each epoch takes the archives in its own order and passes samples through a buffer, from which a
    random one leaves as another comes in. The sequence is a function of (seed, epoch) alone. Every
    rank reads it all and decodes its own part of each batch: the batches of the ranks, put
    together, are the batches of one rank. A sample that cannot be read is left out of its batch and
    listed in `skipped`; where every rank needs the same number of samples, use `read_tar`, which
    knows its broken pictures beforehand.

    Args:
        spec: see `shards`; compressed archives (`.tar.gz`) are fine.
        size: as in `decode`.
        seed: of the shuffling.
        buffer: samples held back; 1 keeps the order of the archives, which are not shuffled either.

    Example:
        >>> TarStream("train-{000..999}.tar", size=64, buffer=4096)
        TarStream(spec='train-{000..999}.tar', size=64, seed=0, buffer=4096)
    """

    spec: str | Path
    size: int | None = None
    seed: int = 0
    buffer: int = 1024
    skipped: list[Skipped] = dataclasses.field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        need(
            self.buffer >= 1,
            lambda: f"`TarStream(buffer)` needs at least 1; received `{self.buffer}`.",
        )

    def samples(self, epoch: int = 0) -> Iterator[Sample]:
        """The undecoded samples of an epoch, in its order."""
        paths = shards(self.spec)
        if self.buffer > 1:
            luck = words(1, self.seed, epoch, np.arange(len(paths)), 0)[:, 0]
            paths = [paths[i] for i in np.argsort(luck, kind="stable")]
        held: list[Sample] = []
        out = 0
        for path in paths:
            for sample in tar_samples(path):
                held.append(sample)
                if len(held) >= self.buffer:
                    yield self._leave(held, epoch, out)
                    out += 1
        while held:
            yield self._leave(held, epoch, out)
            out += 1

    def _leave(self, held: list[Sample], epoch: int, position: int) -> Sample:
        if self.buffer == 1:
            return held.pop(0)
        place = int(words(1, self.seed, epoch, position, 1)[0, 0] % np.uint64(len(held)))
        held[place], held[-1] = held[-1], held[place]
        return held.pop()

    def batches(
        self, batch: int, epoch: int = 0, *, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """This rank's parts of the batches of an epoch from batch `start` on; the last may be
        short.

        A batch holds `images`, `ids` and what the samples have of `texts`, `captions`, `labels`.
        """
        need(
            batch >= world >= 1 and batch % world == 0 and 0 <= rank < world,
            lambda: (
                f"A batch of {batch} needs to be divisible by {world} ranks, and `rank` to be one "
                f"of them; received rank {rank}."
            ),
        )
        share: list[Sample] = []
        position = -1
        part = batch // world
        for position, sample in enumerate(self.samples(epoch)):
            if position // batch >= start and position % batch // part == rank:
                share.append(sample)
            if position % batch == batch - 1 and position // batch >= start:
                yield self._decoded(share)
                share = []
        if share:
            yield self._decoded(share)

    def _decoded(self, share: Sequence[Sample]) -> Batch:
        pictures, notes, keys = [], [], []
        for sample in share:
            fields = {k: (v, (0, 0)) for k, v in sample.items() if k != "__key__"}
            try:
                kind = next((kind for kind in fields if kind in _PICTURE), None)
                if kind is None:
                    raise InputError(f"no picture among {sorted(fields)}")
                picture, note = decode(sample[kind], self.size), _notes(fields)
            except ChiaroError as error:
                self.skipped.append(Skipped(sample["__key__"], str(error)))
                continue
            pictures.append(picture)
            notes.append(note)
            keys.append(sample["__key__"])
        shapes = {picture.shape for picture in pictures}
        need(
            len(shapes) <= 1,
            lambda: f"Pictures in one batch need one size; received {sorted(shapes)}. Pass `size`.",
        )
        images = np.stack(pictures) if pictures else np.zeros((0, 0, 0, 3), np.uint8)
        rows = np.arange(len(keys))
        described = {name: column[rows] for name, column in _columns(notes).items()}
        return {"images": images, "ids": batch_of_objects(keys), **described}


class _Members:
    """The bytes of archive members by row; the archive is opened for each, so workers share
    nothing."""

    def __init__(self, places: list[tuple[Path, int, int]]) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, row: int, /) -> bytes:
        path, start, length = self.places[row]
        with path.open("rb") as file:
            file.seek(start)
            return file.read(length)


Fields = dict[str, tuple[bytes, tuple[int, int]]]


def _grouped(path: Path, mode: str) -> Iterator[tuple[str, Fields]]:
    """Neighbouring files of one key: their kinds, contents and places in the archive.

    With random access (mode "r:") pictures are left in place, and only their places are given.
    """
    need(path.is_file(), lambda: f"`{path}` is not there.")
    key, fields = "", dict[str, tuple[bytes, tuple[int, int]]]()
    try:
        with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
            for member in archive:
                folder, slash, name = member.name.rpartition("/")
                stem, _, kind = name.partition(".")
                if not member.isfile() or not stem or not kind:
                    continue
                mine, kind = f"{folder}{slash}{stem}", kind.lower()
                if fields and (mine != key or kind in fields):
                    yield key, fields
                    fields = {}
                key = mine
                content = b""
                if mode != "r:" or kind not in _PICTURE:
                    file = archive.extractfile(member)
                    content = file.read() if file else b""
                fields[kind] = (content, (member.offset_data, member.size))
        if fields:
            yield key, fields
    except _BROKEN as error:
        hint = " A compressed archive can only be streamed: unzip it, or use `TarStream`."
        zipped = mode == "r:" and path.read_bytes()[:2] in (b"\x1f\x8b", b"BZ", b"\xfd7")
        raise InputError(
            f"`{path}` cannot be read as a tar archive: {error}.{hint * zipped}"
        ) from error


def _notes(fields: Fields) -> Sample:
    """Texts and label of a sample."""
    note: Sample = {}
    if "json" in fields:
        try:
            record = json.loads(fields["json"][0])
        except (ValueError, RecursionError) as error:
            raise InputError(f"its json is damaged: {error}") from None
        if not isinstance(record, dict):
            raise InputError("its json is no object")
        texts: Any = next((record[key] for key in TEXT_KEYS if key in record), [])
        texts = [texts] if isinstance(texts, str) else texts
        if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
            note["captions"] = tuple(texts)
        if type(record.get("label")) is int:
            note["labels"] = record["label"]
    try:
        if "txt" in fields:
            note["captions"] = (fields["txt"][0].decode().strip(),)
        if "cls" in fields:
            note["labels"] = int(fields["cls"][0])
    except ValueError as error:
        raise InputError(f"its text or class is damaged: {error}") from None
    return note


def _columns(notes: Sequence[Sample]) -> dict[str, NDArray[Any]]:
    """What all samples have; what only some have would leave holes, and is left out."""
    columns: dict[str, NDArray[Any]] = {}
    if notes and all("captions" in note for note in notes):
        columns["texts"] = batch_of_objects(note["captions"][0] for note in notes)
        columns["captions"] = batch_of_objects(note["captions"] for note in notes)
    if notes and all("labels" in note for note in notes):
        columns["labels"] = np.array([note["labels"] for note in notes], np.int64)
    return columns
