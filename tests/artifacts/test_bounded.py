"""Files of unknown origin: regular ones only, and never more memory than the limit."""

import gzip
import io
import os
import struct
import zipfile

import numpy as np
import pytest

from chiaroscuro.artifacts.bounded import (
    fits,
    memory_limit,
    open_regular,
    read_regular,
    read_unzipped,
)
from chiaroscuro.artifacts.numpy_files import read_npy, read_npz
from chiaroscuro.errors import ChiaroError, InputError


@pytest.mark.parametrize(
    ("text", "limit"), [("8KB", 8192), ("1.5M", 1572864), ("2gb", 2 << 30), ("12345", 12345)]
)
def test_the_limit_is_an_amount(monkeypatch, text, limit):
    monkeypatch.setenv("CHIARO_MEMORY", text)
    assert memory_limit() == limit


def test_the_limit_is_a_share(monkeypatch):
    monkeypatch.setenv("CHIARO_MEMORY", "0.5")
    half = memory_limit()
    monkeypatch.delenv("CHIARO_MEMORY")
    assert memory_limit() == half
    monkeypatch.setenv("CHIARO_MEMORY", "0.25")
    assert abs(memory_limit() - half // 2) <= 1


@pytest.mark.parametrize("text", ["", "0", "-1", "much", "1e9", "nan"])
def test_another_limit_is_a_sentence(monkeypatch, text):
    monkeypatch.setenv("CHIARO_MEMORY", text)
    with pytest.raises(InputError, match="CHIARO_MEMORY"):
        memory_limit()


def test_the_sentence_has_both_numbers(monkeypatch):
    monkeypatch.setenv("CHIARO_MEMORY", "1KB")
    fits("`a`", 1024)
    with pytest.raises(InputError, match=r"1,025 bytes of memory; the limit is 1,024\."):
        fits("`a`", 1025)


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            open_regular(path)
    with pytest.raises(InputError, match="does not exist"):
        open_regular(tmp_path / "no")
    with pytest.raises(InputError, match="cannot be a file"):
        open_regular("a\0b")
    with pytest.raises(ChiaroError, match="cannot be read"):
        open_regular("x" * 5000)


def test_large_files_are_refused_before_they_are_read(tmp_path, monkeypatch):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 42)  # sparse: takes no room on the disk
    with pytest.raises(InputError, match="4,398,046,511,104 bytes"):
        read_regular(tmp_path / "a")
    with pytest.raises(InputError, match="at most 10 are read"):
        read_regular(tmp_path / "a", 10)


def test_gzip_bombs_stop_at_the_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("CHIARO_MEMORY", "2MB")
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(50 << 20)))
    with pytest.raises(InputError, match="decompressed, takes"):
        read_unzipped(tmp_path / "a.gz")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"light"))
    assert read_unzipped(tmp_path / "b.gz") == b"light"


def npz(path, **members: bytes):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def header(text: str) -> bytes:
    head = text.encode("latin-1")
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head


def test_an_npz_that_claims_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CHIARO_MEMORY", "2MB")
    out = io.BytesIO()
    np.save(out, np.zeros(1 << 22, np.uint8))
    with pytest.raises(InputError, match="the limit is 2,097,152"):
        read_npz(npz(tmp_path / "a.npz", x=out.getvalue()))
    half = out.getvalue()[: 1 << 21]
    with pytest.raises(InputError, match="the limit is 2,097,152"):  # together
        read_npz(npz(tmp_path / "b.npz", x=half, y=half))


@pytest.mark.parametrize(
    "head",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 400 + ",)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 300 + "1" + ")" * 300 + "}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': " + "(1," * 200 + ")" * 200 + "}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1,) * 5}",
        "{'descr': '|S" + "9" * 30 + "', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1" + ",1" * 70 + ")}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': ",
        "\0\0\0",
        "[]",
        "-" * 900 + "1",
    ],
)
def test_headers_are_sentences(tmp_path, head):
    (tmp_path / "a.npy").write_bytes(header(head) + bytes(64))
    npz(tmp_path / "a.npz", x=header(head) + bytes(64))
    for read, name in ((read_npy, "a.npy"), (read_npz, "a.npz")):
        with pytest.raises(InputError, match=r"a\.np"):
            read(tmp_path / name)


def test_a_lost_entry_of_the_directory_is_noticed(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.eye(2), labels=[0, 1])
    content = bytearray((tmp_path / "a.npz").read_bytes())
    at = content.rindex(b"PK\5\6")
    first = content.index(b"PK\1\2")
    second = content.index(b"PK\1\2", first + 1)
    content[at + 12 : at + 16] = struct.pack("<I", second - first)  # the length of the directory
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.npz"):
        read_npz(tmp_path / "a.npz")
