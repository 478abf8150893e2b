"""Tar archives: indexed and streamed, shuffled by seed, shared by ranks, broken."""

import gzip
import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.data import TarStream, read_tar
from chiaroscuro.data.tars import shards, tar_samples
from chiaroscuro.errors import InputError


def png(value: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), value, np.uint8)).save(out, "PNG")
    return out.getvalue()


def write(path, members):
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def plant(root, n=12, n_shards=3):
    for shard in range(n_shards):
        members = []
        for i in range(shard, n, n_shards):
            members += [
                (f"s/{i:03d}.png", png(i)),
                (f"s/{i:03d}.txt", f"number {i}\n".encode()),
                (f"s/{i:03d}.cls", str(i % 2).encode()),
            ]
        write(root / f"a-{shard}.tar", members)
    return root


def values(batches) -> list[int]:
    return [int(v) for batch in batches for v in batch["images"][:, 0, 0, 0]]


def test_samples_are_grouped_by_key(tmp_path):
    path = write(
        tmp_path / "a.tar", [("x.jpg", b"1"), ("x.txt", b"2"), ("y.seg.png", b"3"), ("y.txt", b"4")]
    )
    seen = list(tar_samples(path))
    assert seen[0] == {"__key__": "x", "jpg": b"1", "txt": b"2"}
    assert seen[1] == {"__key__": "y", "seg.png": b"3", "txt": b"4"}


def test_an_index_gives_any_sample(tmp_path):
    data = read_tar(plant(tmp_path))
    assert len(data) == 12
    batch = data[[11, 0]]
    assert batch["images"][:, 0, 0, 0].tolist() == [11, 0]
    assert batch["texts"].tolist() == ["number 11", "number 0"]
    assert batch["labels"].tolist() == [1, 0]
    assert batch["ids"].tolist() == ["s/011", "s/000"]


def test_json_holds_texts_and_labels(tmp_path):
    record = json.dumps({"captions": ["a", "b"], "label": 3}).encode()
    data = read_tar(write(tmp_path / "a.tar", [("k.png", png(1)), ("k.json", record)]))
    assert data[[0]]["captions"].tolist() == [("a", "b")]
    assert data.labels.tolist() == [3]


def test_broken_samples_are_listed(tmp_path):
    members = [
        ("a.png", png(1)),
        ("b.png", b"broken"),
        ("c.txt", b"no picture"),
        ("d.png", png(2)),
        ("d.json", b"{"),
        ("e.png", png(3)),
    ]
    data = read_tar(write(tmp_path / "t.tar", members))
    assert data.ids.tolist() == ["a", "e"]
    assert sorted(one.path for one in data.skipped) == ["t.tar:b", "t.tar:c", "t.tar:d"]
    stream = TarStream(tmp_path / "t.tar", buffer=1)
    assert values(stream.batches(6)) == [1, 3]
    assert [one.path for one in stream.skipped] == ["b", "c", "d"]


def test_names_that_lead_out_are_only_keys(tmp_path):
    (tmp_path / "in").mkdir()
    path = write(tmp_path / "in" / "a.tar", [("../../evil.png", png(1))])
    assert len(read_tar(path)) == 1
    assert [p.name for p in tmp_path.rglob("*")] == ["in", "a.tar"]


def test_links_are_not_followed(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("x.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(InputError, match="no sample with a picture"):
        read_tar(tmp_path / "a.tar")


def test_a_stream_is_a_function_of_seed_and_epoch(tmp_path):
    spec = plant(tmp_path)
    first = values(TarStream(spec, buffer=5).batches(4))
    assert sorted(first) == list(range(12))
    assert first == values(TarStream(spec, buffer=5).batches(3))
    assert first != values(TarStream(spec, buffer=5).batches(4, epoch=1))
    assert first != values(TarStream(spec, buffer=5, seed=1).batches(4))
    assert values(TarStream(spec, buffer=1).batches(4)) == [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_share_each_batch(tmp_path, world):
    stream = TarStream(plant(tmp_path, n=14), buffer=6)
    whole = [values([b]) for b in stream.batches(4)]
    parts = [[values([b]) for b in stream.batches(4, rank=r, world=world)] for r in range(world)]
    for place, batch in enumerate(whole):
        together = [v for part in parts if place < len(part) for v in part[place]]
        assert together == batch


def test_a_stream_goes_on_where_it_was(tmp_path):
    stream = TarStream(plant(tmp_path), buffer=6)
    whole = [values([b]) for b in stream.batches(4)]
    assert [values([b]) for b in stream.batches(4, start=2)] == whole[2:]


def test_shards_by_braces_stars_and_folders(tmp_path):
    plant(tmp_path)
    for spec in (tmp_path, f"{tmp_path}/a-{{0..2}}.tar", f"{tmp_path}/a-*.tar"):
        assert [path.name for path in shards(spec)] == ["a-0.tar", "a-1.tar", "a-2.tar"]
    with pytest.raises(InputError, match="names 1000000000 archives"):
        shards("a-{000000000..999999999}.tar")
    with pytest.raises(InputError, match="matches no file"):
        shards(f"{tmp_path}/b-*.tar")


def test_compressed_archives_are_streamed_only(tmp_path):
    plain = write(tmp_path / "a.tar", [("a.png", png(5))])
    (tmp_path / "b.tar").write_bytes(gzip.compress(plain.read_bytes()))
    assert values(TarStream(tmp_path / "b.tar").batches(1)) == [5]
    with pytest.raises(InputError, match="use `TarStream`"):
        read_tar(tmp_path / "b.tar")


@pytest.mark.parametrize("content", [b"", b"junk" * 300])
def test_what_is_no_archive_is_a_sentence(tmp_path, content):
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.tar"):
        read_tar(tmp_path / "a.tar")


def test_a_cut_archive_is_a_sentence(tmp_path):
    path = write(tmp_path / "a.tar", [(f"{i}.png", png(i) * 30) for i in range(9)])
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(InputError, match="cannot be read as a tar"):
        list(tar_samples(path))


def test_a_batch_must_divide(tmp_path):
    with pytest.raises(InputError, match="batch of 5 needs to be divisible by 2"):
        next(TarStream(plant(tmp_path)).batches(5, world=2))
