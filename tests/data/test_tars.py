"""Tar archives: indexed, cached, compressed, at an address, damaged and hostile."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import warnings

import numpy as np
import pytest
from PIL import Image

from chiaroscuro.data import BlockOrder, order_of, read_tar, write_tars
from chiaroscuro.data import index as index_file
from chiaroscuro.data.shards import shards
from chiaroscuro.data.tars import tar_samples
from chiaroscuro.engine.fingerprint import fingerprint
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


def test_names_that_lead_out_are_only_keys(tmp_path):
    (tmp_path / "in").mkdir()
    path = write(tmp_path / "in" / "a.tar", [("../../evil.png", png(1))])
    assert len(read_tar(path)) == 1
    assert [p.name for p in tmp_path.rglob("*")] == ["in", "a.tar"]


def test_links_are_not_followed_and_listed(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in [
            *(("a.png", "file"), ("b.png", "file"), ("b.cls", tarfile.LNKTYPE)),
            *(("c.png", tarfile.SYMTYPE), ("d.png", tarfile.FIFOTYPE), ("e.png", tarfile.DIRTYPE)),
        ]:
            member = tarfile.TarInfo(name)
            if kind == "file":
                member.size = len(png(1))
                archive.addfile(member, io.BytesIO(png(1)))
            else:
                member.type, member.linkname = kind, "/etc/passwd"
                archive.addfile(member)
    data = read_tar(tmp_path / "a.tar")
    assert data[np.arange(len(data))]["ids"].tolist() == ["a"]
    assert [one.path for one in data.skipped] == ["a.tar:b", "a.tar:c", "a.tar:d"]
    assert "its `cls` is a link" in data.skipped[0].reason
    with pytest.raises(InputError, match=r"Sample `b` of .* its `cls` is a link"):
        list(tar_samples(tmp_path / "a.tar"))


def test_shards_by_braces_stars_and_folders(tmp_path):
    plant(tmp_path)
    for spec in (tmp_path, f"{tmp_path}/a-{{0..2}}.tar", f"{tmp_path}/a-*.tar"):
        assert [path.name for path in shards(spec)] == ["a-0.tar", "a-1.tar", "a-2.tar"]
    with pytest.raises(InputError, match="names 1000000000 archives"):
        shards("a-{000000000..999999999}.tar")
    with pytest.raises(InputError, match="matches no file"):
        shards(f"{tmp_path}/b-*.tar")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_archives_are_copied_into_the_cache(tmp_path, monkeypatch, pack):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plain = write(tmp_path / "a.tar", [("a.png", png(5)), ("b.png", png(6))])
    (tmp_path / "b.tar").write_bytes(pack(plain.read_bytes()))
    data = read_tar(tmp_path / "b.tar")
    assert data.column("images")[:, 0, 0, 0].tolist() == [5, 6]
    assert isinstance(order_of(data, 2), BlockOrder)
    (tmp_path / "b.tar").write_bytes(pack(plain.read_bytes())[:-9])
    with pytest.raises(InputError, match=r"b\.tar` cannot be read"):
        read_tar(tmp_path / "b.tar")


def test_addresses_are_read_through_fsspec_where_allowed(tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plant(tmp_path)
    memory = fsspec.filesystem("memory")
    for path in tmp_path.glob("a-*.tar"):
        memory.pipe(f"/far/{path.name}", path.read_bytes())
    for spec in ("memory://far/a-{0..2}.tar", "memory://far/a-*.tar"):
        data = read_tar(spec)
        assert data.column("labels").tolist() == read_tar(tmp_path).column("labels").tolist()
        assert (data.column("images") == read_tar(tmp_path).column("images")).all()
    monkeypatch.delenv("CHIARO_REMOTE", raising=False)
    with pytest.raises(InputError, match="CHIARO_REMOTE=1"):
        read_tar("https://example.org/a.tar")


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


def test_a_flipped_bit_in_a_header_is_named_by_its_byte(tmp_path):
    path = write(tmp_path / "a.tar", [(f"{i:04d}.png", png(i)) for i in range(40)])
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        at = archive.getmembers()[10].offset
    content[at + 3] ^= 1
    path.write_bytes(content)
    for read in (read_tar, lambda p: list(tar_samples(p))):
        with pytest.raises(InputError, match=rf"header at byte {at:,} is damaged"):
            read(path)


def test_a_cut_at_a_member_is_an_error(tmp_path):
    path = write(tmp_path / "a.tar", [(f"{i:04d}.png", png(i)) for i in range(9)])
    with tarfile.open(path) as archive:
        at = archive.getmembers()[5].offset
    whole = path.read_bytes()
    for cut, sentence in ((at, "is damaged"), (at + 512, "unexpected end")):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=sentence):
            read_tar(path)


def test_an_erased_header_is_not_the_end(tmp_path):
    path = write(tmp_path / "a.tar", [(f"{i:04d}.png", png(i)) for i in range(9)])
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        at = archive.getmembers()[5].offset
    content[at : at + 512] = bytes(512)
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"closing zeros begin at byte {at:,} and more follows"):
        read_tar(path)
    plain = write(tmp_path / "b.tar", [("x.png", png(1))]).read_bytes()
    (tmp_path / "b.tar").write_bytes(plain + plain)
    with pytest.raises(InputError, match="two archives"):
        read_tar(tmp_path / "b.tar")


def test_one_closing_block_is_not_enough(tmp_path):
    path = write(tmp_path / "a.tar", [("x.png", png(1))])
    content = path.read_bytes().rstrip(b"\0")
    content += bytes(-len(content) % 512)
    for blocks, good in ((0, False), (1, False), (2, True), (20, True)):
        path.write_bytes(content + bytes(512 * blocks))
        if good:
            assert len(read_tar(path)) == 1
        else:
            with pytest.raises(InputError, match="cannot be read as a tar"):
                read_tar(path)


def checksum(header: bytearray) -> bytearray:
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return header


@pytest.mark.parametrize(
    "size",
    [
        b"\xff" * 12,
        b"\x80" + b"\xff" * 11,
        b"\x80" + b"\0" * 3 + b"\x7f" + b"\xff" * 7,
        b"77777777777\0",
    ],
)
def test_sizes_in_base_256_neither_loop_nor_allocate(tmp_path, size):
    path = write(tmp_path / "a.tar", [("a.png", png(1)), ("b.png", png(2))])
    content = bytearray(path.read_bytes())
    header = content[:512]
    header[124:136] = size
    content[:512] = checksum(header)
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as a tar"):
        read_tar(path)


def test_a_long_name_does_not_allocate(tmp_path):
    path = write(tmp_path / "a.tar", [("a" * 300 + ".png", png(1))])
    content = bytearray(path.read_bytes())
    header = content[:512]
    header[124:136] = b"%011o\0" % (1 << 32)
    content[:512] = checksum(header)
    path.write_bytes(content)
    with pytest.raises(InputError, match="says 4294967296 bytes"):
        read_tar(path)


def test_sparse_members_are_refused(tmp_path):
    info = tarfile.TarInfo("a.png")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    info.pax_headers |= {"GNU.sparse.name": "a.png", "GNU.sparse.realsize": str(1 << 40)}
    body = b"0\n".ljust(512, b"\0")
    info.size = len(body)
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(body))
    with pytest.raises(InputError, match="sparse"):
        read_tar(tmp_path / "a.tar")


@pytest.mark.parametrize("label", [b"1" + b"0" * 30, b"9" * 5000, b"-7", b"x"])
def test_impossible_labels_are_skipped_and_listed(tmp_path, label):
    members = [("a.png", png(1)), ("a.cls", b"1"), ("b.png", png(2)), ("b.cls", label)]
    data = read_tar(write(tmp_path / "a.tar", members))
    assert data.labels.tolist() == [1]
    assert [one.path for one in data.skipped] == ["a.tar:b"]


def test_missing_labels_are_unknown_and_missing_texts_refused(tmp_path):
    members = [("a.png", png(1)), ("a.cls", b"1"), ("a.txt", b"one"), ("b.png", png(2))]
    path = write(tmp_path / "a.tar", members)
    with pytest.raises(InputError, match=r"1 of 2 samples .* the first is `b`"):
        read_tar(path)
    data = read_tar(path, texts=False)
    assert data.labels.tolist() == [1, -1]


def test_words_as_labels_are_numbered(tmp_path):
    members = []
    for key, label in (("a", "dog"), ("b", "cat"), ("c", "dog")):
        members += [(f"{key}.png", png(1)), (f"{key}.json", json.dumps({"label": label}).encode())]
    data = read_tar(write(tmp_path / "a.tar", members))
    assert data.class_names == ("cat", "dog")
    assert data.labels.tolist() == [1, 0, 1]


def test_what_we_write_is_read_again(tmp_path):
    data = read_tar(plant(tmp_path))
    paths = write_tars(data, tmp_path / "out", samples=5)
    again = read_tar(tmp_path / "out")
    assert len(paths) == 3
    for name in ("images", "texts", "labels"):
        assert (again.column(name) == data.column(name)).all()


@pytest.mark.extra("webdataset")
def test_what_we_write_is_read_by_webdataset(tmp_path):
    data = read_tar(plant(tmp_path))
    paths = write_tars(data, tmp_path / "out", samples=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import webdataset as wds

        theirs = list(wds.WebDataset([str(p) for p in paths], shardshuffle=False).decode("rgb8"))
    assert [int(one["cls"]) for one in theirs] == data.labels.tolist()
    assert (np.stack([one["png"] for one in theirs]) == data.column("images")).all()
    assert [one["json"]["captions"][0] for one in theirs] == data.column("texts").tolist()


def test_the_index_is_kept_until_an_archive_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(index_file, "CACHED_FROM", 5)
    root = tmp_path / "data"
    root.mkdir()
    first = read_tar(plant(root))
    write(root / "a-1.tar", [("z.png", b"no image")])
    changed = read_tar(root)
    assert len(changed) == 8
    assert [one.path for one in changed.skipped] == ["a-1.tar:z"]
    monkeypatch.setattr("chiaroscuro.data.tars._index", None)  # must not be asked again
    again = read_tar(root)
    kept = again.columns["labels"]
    assert isinstance(kept, index_file.RowsOnDisk)
    copy = pickle.loads(pickle.dumps(kept))
    assert (
        copy[[7, 0, 0]].tolist() == kept[[7, 0, 0]].tolist() == changed.labels[[7, 0, 0]].tolist()
    )
    monkeypatch.setattr(index_file, "_ONE_BY_ONE", 2)
    assert kept[[7, 0, 0]].tolist() == copy[[7, 0, 0]].tolist()
    np.save(tmp_path / "other.npy", np.zeros(9))
    (tmp_path / "other.npy").replace(kept.path)  # whoever has it open goes on with what was there
    with pytest.raises(InputError, match="was replaced while it was in use"):
        pickle.loads(pickle.dumps(kept))
    assert again.skipped == changed.skipped
    for name in ("ids", "labels", "texts"):
        assert again.column(name).tolist() == changed.column(name).tolist()
    assert (again[[7, 0]]["images"] == changed[[7, 0]]["images"]).all()
    assert len(first) == 12


@pytest.fixture
def far(tmp_path, monkeypatch):
    """Three archives in fsspec's memory, and how often it was asked for what."""
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    plant(tmp_path)
    for path in tmp_path.glob("a-*.tar"):
        memory.pipe(f"/counted/{path.name}", path.read_bytes())
    asked = {"info": 0, "open": 0}

    def counted(name, call):
        def count(*arguments, **named):
            asked[name] += 1
            return call(*arguments, **named)

        return count

    for name in asked:
        monkeypatch.setattr(type(memory), name, counted(name, getattr(type(memory), name)))
    return memory, asked


def test_a_shard_elsewhere_is_asked_about_once_and_fetched_once(far):
    data = read_tar("memory://counted/a-{0..2}.tar")
    for _ in range(3):
        assert len(data[np.arange(12)]["images"]) == 12
    copy = pickle.loads(pickle.dumps(data))  # as a worker gets it
    assert copy[[0]]["images"].shape == (1, 4, 4, 3)
    fingerprint(data)
    assert far[1] == {"info": 3, "open": 3}


def test_shards_beyond_the_cache_are_fetched_again_and_must_be_the_same(far, monkeypatch):
    memory, asked = far
    monkeypatch.setenv("CHIARO_SHARD_CACHE", "1")
    data = read_tar("memory://counted/a-{0..2}.tar")
    images = data[np.arange(12)]["images"]
    assert images[:, 0, 0, 0].tolist() == [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]
    assert asked["open"] > 3
    monkeypatch.setattr("chiaroscuro.data.shards.FRESH", -1.0)
    content = memory.cat_file("/counted/a-0.tar")
    memory.pipe("/counted/a-0.tar", content + b"\0" * 1024)
    with pytest.raises(InputError, match=r"a-0\.tar` has changed since it was opened"):
        data[np.arange(12)]["images"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_half_of_a_far_shard_is_not_kept(far, monkeypatch, pack):
    """A connection that ends early: the next try finds the whole, not the half in the cache."""
    memory, _ = far
    content = pack(memory.cat_file("/counted/a-0.tar"))
    memory.pipe("/counted/half.tar", content)
    whole = memory.open

    def cut(path, mode="rb", **options):
        return io.BytesIO(content[: len(content) // 2 // 512 * 512])

    with monkeypatch.context() as patch:
        patch.setattr(memory, "open", cut)
        with pytest.raises(InputError, match=r"half\.tar`"):
            read_tar("memory://counted/half.tar")
    assert memory.open == whole
    assert len(read_tar("memory://counted/half.tar")) == 4


def test_links_of_a_folder_of_archives_do_not_lead_out(tmp_path):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.tar", [("0.png", png(0))])
    write(tmp_path / "b.tar", [("1.png", png(1))])
    (tmp_path / "in" / "c.tar").symlink_to("a.tar")
    assert len(read_tar(tmp_path / "in")) == 2
    (tmp_path / "in" / "b.tar").symlink_to(tmp_path / "b.tar")
    with pytest.raises(InputError, match=r"1 of 3 files by links that lead out.*`b\.tar`"):
        read_tar(tmp_path / "in")
    assert len(read_tar(tmp_path / "in" / "*.tar")) == 3


def test_what_lies_beside_archives_is_no_archive(tmp_path):
    """An index of another tool, and what macOS and Spark write beside each file."""
    write(tmp_path / "a.tar", [("0.png", png(0))])
    for name in ("a.tar.idx", "._a.tar", ".a.tar.crc"):
        (tmp_path / name).write_bytes(b"0 1 2")
    assert len(read_tar(tmp_path)) == 1
    assert [shard.name for shard in shards(tmp_path)] == ["a.tar"]
