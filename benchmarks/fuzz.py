"""Change good files in 20,000 ways, read them, and see that each gives all it holds or a sentence.

    python benchmarks/fuzz.py [--cases 20000] [--seed 0] [--only NAME ...] [--log FILE ...]

Every reader has good files: arrays, images, texts, tables, archives, embeddings, weights,
checkpoints, run folders, tuning journals, settings, notation, overrides and requests to the live
view. A case takes one of them, changes it once or a few times and reads it. Changes are of bytes
(bits, lengths, ranges), of what files are (a pipe, a device, a folder, a link) and of structure: a
value of a JSON document, a header of numpy or tar with its checksum made to match, the directory of
a zip, a pickle that would run a command, a bomb of zeros, a checkpoint whose manifest agrees.

A case is a function of the seed and its number; with `--log FILE` each is written down as it ends,
and none in it is run again. Several processes may share the work, from `--begin` to `--cases` each,
and a last one with all of their logs adds up. Cases run in a process of their own, whose address
space, time and descriptors are limited, with `CHIARO_MEMORY` set to `--limit`; what is counted:

    tracebacks   an error that is not a sentence of ours, or one of several lines
    hangs        more than 10 s of the processor's time, or a minute three times in a row
    executions   a command, a new process, a connection, a class that a pickle names, a file that is
                 written outside of the case's folder
    peak         resident memory, at most 1 GB
    lost         fewer samples than the file declares, read and listed as left out together
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import gzip
import hashlib
import io
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from threadpoolctl import threadpool_info

SECONDS = 10.0
MOST_MB = 1024
ADDRESS_SPACE = 12 << 30  # torch alone maps several GB that it never touches
ROWS = 12
PART = 10_000
"""Cases of one process."""


# ---- changes of bytes ----

Luck = random.Random


def flip(data: bytearray, luck: Luck) -> None:
    for _ in range(luck.choice([1, 1, 2, 8])):
        if data:
            data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)


def overwrite(data: bytearray, luck: Luck) -> None:
    if data:
        at = luck.randrange(len(data))
        new = luck.choice([b"\0", b"\xff", b"\x7f", b"\x80", b"\n", b'"', b"{", b"\xff" * 8])
        data[at : at + len(new)] = new


def truncate(data: bytearray, luck: Luck) -> None:
    del data[luck.choice([0, luck.randrange(len(data) + 1), max(0, len(data) - 1)]) :]


def extend(data: bytearray, luck: Luck) -> None:
    data += luck.choice([b"\0", b"\n", b" ", b"}", luck.randbytes(luck.randrange(1, 2000))])


def remove(data: bytearray, luck: Luck) -> None:
    at = luck.randrange(len(data) + 1)
    del data[at : at + luck.choice([1, 2, 16, 512])]


def repeat(data: bytearray, luck: Luck) -> None:
    at = luck.randrange(len(data) + 1)
    data[at:at] = data[at : at + luck.choice([1, 16, 512])] * luck.choice([1, 2, 50])


def swap(data: bytearray, luck: Luck) -> None:
    n = luck.choice([4, 64, 512])
    a, b = luck.randrange(len(data) + 1), luck.randrange(len(data) + 1)
    data[a : a + n], data[b : b + n] = data[b : b + n], data[a : a + n]


def blank(data: bytearray, luck: Luck) -> None:
    at = luck.randrange(len(data) + 1)
    end = min(len(data), at + luck.choice([8, 512, 4096]))
    data[at:end] = bytes(end - at)


def number(data: bytearray, luck: Luck) -> None:
    """Another number in the place of one that is written in digits."""
    found = list(re.finditer(rb"\d+", bytes(data)))
    if found:
        one = luck.choice(found)
        data[one.start() : one.end()] = luck.choice(NUMBERS)


NUMBERS = [b"0", b"-1", b"1e400", b"9" * 5000, b"99999999999", b"NaN", b"1.5", b"1000000000000000"]
BYTES = [flip, flip, overwrite, truncate, extend, remove, repeat, swap, blank, number]


# ---- changes of documents ----

CANARY = "chiaro-fuzz-was-run"
RUN = f"open('{CANARY}', 'w')"
VALUES: list[Any] = [
    *(None, True, 0, -1, 10**30, 2**63, 1e308, -1e308, 1e-320, 0.5, "", "x", [], {}, [[]], [{}]),
    *("NaN", "Infinity", "../../../etc/passwd", "/dev/zero", "/proc/self/mem", "\ud800", "\0"),
    *("<script>alert(1)</script>", "x" * 100_000, "constructor", "__proto__", f"__import__('{RUN}"),
    *([0] * 1000, {"a": {"b": {"c": [1, 2, 3]}}}, [1, "a", None], "é" * 50, "1e999", {"": 1}),
]
KEYS = ["constructor", "__proto__", "", "step", "epoch", "\ud800", "x" * 300, "a.b", "toString"]


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every place in a document."""
    yield path
    children: Any = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, inner in children:
        yield from places(inner, (*path, key))


def changed(document: Any, luck: Luck) -> Any:
    """A document with one value replaced, removed, renamed or nested."""
    *above, last = luck.choice(list(places(document))) or (None,)
    if last is None:
        return luck.choice(VALUES)
    inside = document
    for key in above:
        inside = inside[key]
    kind = luck.randrange(5)
    if kind == 0:
        del inside[last]
    elif kind == 1 and isinstance(inside, dict):
        inside[luck.choice(KEYS)] = inside.pop(last)
    elif kind == 2 and isinstance(inside, dict):
        inside[luck.choice(KEYS)] = luck.choice(VALUES)
    else:
        inside[last] = luck.choice(VALUES)
    return document


def as_json(value: Any, luck: Luck) -> str:
    """JSON with what a library would not write: deep nesting, long numbers, half surrogates."""
    text = json.dumps(value, ensure_ascii=luck.random() < 0.5)
    kind = luck.randrange(12)
    if kind == 0:
        depth = luck.choice([500, 20_000, 200_000])
        text = text.replace("1", "[" * depth + "1" + "]" * depth, 1)
    elif kind == 1:
        text = re.sub(r"\d+", "7" * 5000, text, count=1)
    return text


def json_file(data: bytes, luck: Luck) -> bytes:
    return as_json(changed(json.loads(data), luck), luck).encode("utf-8", "surrogatepass")


def json_lines(data: bytes, luck: Luck) -> bytes:
    """One line of a document of lines is changed; their number stays."""
    lines = data.decode().splitlines()
    at = luck.randrange(len(lines))
    lines[at] = as_json(changed(json.loads(lines[at]), luck), luck).replace("\n", " ")
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


TOML = [
    *("nan", "-inf", "''", "[]", "{}", "true", "-1", "0", "1e300", "9" * 5000, "0x" + "f" * 4000),
    *(
        "[" * 3000 + "]" * 3000,
        "{a = " * 400 + "1" + "}" * 400,
        "1979-05-27T07:32:00Z",
        "'\\u0000'",
    ),
    *('"' + "x" * 100_000 + '"', "[1, 'a', [2]]", '"../../../etc/passwd"', '"/dev/zero"', '"""'),
]


def toml_file(data: bytes, luck: Luck) -> bytes:
    """Another value for a key, another key, or a table twice."""
    lines = data.decode().splitlines()
    at = luck.choice([i for i, line in enumerate(lines) if "=" in line] or [0])
    key, _, value = lines[at].partition("=")
    kind = luck.randrange(6)
    if kind == 0:
        lines.insert(luck.randrange(len(lines)), luck.choice(["[network]", "[[a]]", "a.b.c = 1"]))
    elif kind == 1:
        lines[at] = f"{key.strip()}{luck.choice(['x', '.y', ' z', ''])} = {value}"
    elif kind == 2:
        lines[at] = f"{key} = {json.dumps(notation(luck), ensure_ascii=False)}"
    elif kind == 3:
        del lines[at]
    else:
        lines[at] = f"{key} = {luck.choice(TOML)}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")


# ---- notation ----

GOOD = [
    "InfoNCE(Gaussian(tau=0.5), AllButSelf())",
    "InfoNCE(Sum(Gaussian(tau=0.5), Laplace(tau=0.5), weights=(1, 2)))",
    "InfoNCE(Gaussian(tau=[1.0] * 64 + [0.7] * 64))",
    "Weighted((1, InfoNCE()), (0.5, VICReg()))",
    "ResNet(9, 0.125, stem='strided')",
    "MLP(d_in=5, d=8)",
    "SimCLR(size=32)",
    "digits(size=16, renderings=(1, 1))",
    "Process(Box(4), content=2, style=Normal(0.3), mixing=LeakyMLP(4))",
    "Cosine(tau=Learnable(0.5))",
]
PIECES = [
    *(
        "9**9**9",
        "[]*999999999",
        "-" * 900 + "1",
        "(" * 2000,
        "~1",
        "1e309",
        "10**5000",
        "''*10**9",
    ),
    *(
        "__import__('os').system('touch x')",
        f"{RUN}",
        "lambda: 1",
        "[x for x in ()]",
        "().__class__",
    ),
    *(
        "Gaussian",
        "None",
        "True",
        "*",
        "**{}",
        "...",
        "tau=0",
        "tau=tau",
        "=",
        ",",
        "1j",
        "b''",
        "{}",
    ),
    *(
        "f'{1}'",
        "'\\ud800'",
        "'" + "x" * 5000 + "'",
        "if",
        "[0.5]*100000000",
        "range(9)",
        "\0",
        "\n",
    ),
]


def notation(luck: Luck) -> str:
    """A notation with pieces put in, taken out or exchanged."""
    text = luck.choice(GOOD)
    for _ in range(luck.randrange(1, 4)):
        at = luck.randrange(len(text) + 1)
        kind = luck.randrange(4)
        if kind == 0:
            text = text[:at] + text[at + luck.choice([1, 1, 5]) :]
        elif kind == 1:
            text = text[:at] + luck.choice(PIECES) + text[at:]
        elif kind == 2:
            text = re.sub(r"\d+(\.\d+)?", lambda _: luck.choice(PIECES), text, count=1)
        else:
            text = text.replace(luck.choice(["(", ")", ",", "tau"]), luck.choice(PIECES), 1)
    return text[:20_000]


# ---- changes of containers ----


def npy_header(data: bytes, luck: Luck) -> bytes:
    """Another shape, order or type in the header of an array, of the length that it says."""
    size = struct.unpack("<H", data[8:10])[0]
    about = data[10 : 10 + size].decode("latin-1").strip()
    kind = luck.randrange(4)
    if kind == 0:
        shape = luck.choice(
            ["(99999999999, 9)", "(-1,)", "(2,)*9", "(1e9,)", "()", "((1,),)", "(0, 5)"]
        )
        about = re.sub(r"\([^)]*\)", shape, about, count=1)
    elif kind == 1:
        kinds = [
            "|O",
            "<f16",
            "<U9999999",
            "V0",
            "<M8[ns]",
            "<c16",
            ">f4",
            "|S0",
            "[('a', '<f4')]",
            "<u8",
        ]
        about = re.sub(r"'[<>|][^']*'", repr(luck.choice(kinds)), about, count=1)
    elif kind == 2:
        about = luck.choice(["{" * 200, "1" * 9000, "{}", f"{RUN}", "{'descr': '<f4'}", "9**9**9"])
    else:
        about = about.replace("False", luck.choice(["True", "1", "None", "[]"]))
    text = about.encode("latin-1")
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return data[:8] + struct.pack("<H", min(len(text), 65535)) + text + data[10 + size :]


def npz_file(data: bytes, luck: Luck) -> bytes:
    """A zip written anew with one member changed, left out of nothing, twice, or a bomb."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(m.filename, archive.read(m)) for m in archive.infolist()]
    at = luck.randrange(len(members))
    name, content = members[at]
    kind = luck.randrange(6)
    if kind == 0:
        members.append((luck.choice([name, "../../x.npy", "/tmp/x.npy", "a.txt", ""]), content))
    elif kind == 1:
        members[at] = (name, bytes(np_bytes(np.array([Dangerous()], dtype=object))))
    elif kind == 2:
        members[at] = (name, npy_bomb(luck))
    else:
        members[at] = (name, npy_header(content, luck))
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")
        for member, inner in members:
            archive.writestr(member, inner)
    return out.getvalue()


def np_bytes(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


class Dangerous:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return eval, (RUN,)


def npy_bomb(luck: Luck) -> bytes:
    """Few bytes of a zip, many of memory: zeros, and a header that claims them."""
    rows = luck.choice([1 << 20, 1 << 24])
    head = np_bytes(np.zeros(0, np.float32))[:128].replace(b"(0,)", f"({rows},)".encode())
    return head[:128].ljust(128) + bytes(4 * rows)


TAR_KINDS = [b"1", b"2", b"3", b"6", b"5", b"S", b"x", b"g", b"L", b"K", b"\0", b"Z"]


def tar_file(data: bytes, luck: Luck) -> bytes:
    """Another header, its checksum made to match; or blocks lost, where members begin."""
    block = bytearray(data)
    heads = [at for at in range(0, len(block) - 512, 512) if block[at + 257 : at + 262] == b"ustar"]
    if not heads:
        return bytes(block)
    at = luck.choice(heads)
    kind = luck.randrange(9)
    if kind == 0:
        return bytes(block[:at])
    if kind == 1:
        return bytes(block[: luck.choice([len(block.rstrip(b"\0")) // 512 * 512 + 512])])
    if kind == 2:
        return bytes(block[:at] + block[at + 512 :])
    if kind == 3:
        block[at : at + 512] = bytes(512)
        return bytes(block)
    if kind == 4:
        block[at : at + 100] = luck.choice(
            [b"../../x.png", b"\xff\xfe.png", b"a" * 100, b"", b"x"]
        ).ljust(100, b"\0")
    elif kind == 5:
        size = luck.choice(
            [b"77777777777\0", b"\x80" + b"\0" * 3 + b"\xff" * 8, b"-1\0", b"\xff" * 12]
        )
        block[at + 124 : at + 136] = size.ljust(12, b"\0")[:12]
    elif kind == 6:
        block[at + 156 : at + 157] = luck.choice(TAR_KINDS)
    elif kind == 7:
        block[at + luck.randrange(512)] ^= 1 << luck.randrange(8)
        return bytes(block)  # its checksum as it was
    else:
        return bytes(block + block)
    block[at + 148 : at + 156] = b" " * 8
    total = sum(block[at : at + 512])
    block[at + 148 : at + 156] = f"{total:06o}\0 ".encode()
    return bytes(block)


def safetensors_file(data: bytes, luck: Luck) -> bytes:
    size = struct.unpack("<Q", data[:8])[0]
    head = as_json(changed(json.loads(data[8 : 8 + size]), luck), luck).encode(
        "utf-8", "surrogatepass"
    )
    told = luck.choice([len(head), len(head), len(head), 2**40, 2**63, 0])
    return struct.pack("<Q", told) + head + data[8 + size :]


def gzip_file(data: bytes, luck: Luck) -> bytes:
    """Bytes under the compression, or a bomb, or two streams."""
    inner = bytearray(gzip.decompress(data))
    kind = luck.randrange(4)
    if kind == 0:
        return gzip.compress(bytes(inner)) + luck.choice([b"\0" * 9, b"x", gzip.compress(b"y\n")])
    if kind == 1:
        return zero_bomb()
    luck.choice(BYTES)(inner, luck)
    return gzip.compress(bytes(inner), 1)


_BOMB: list[bytes] = []


def zero_bomb() -> bytes:
    """160 MB of zeros in 160 kB, which is more than the limit."""
    if not _BOMB:
        packer = zlib.compressobj(1, wbits=31)
        parts = [packer.compress(bytes(1 << 20)) for _ in range(160)]
        _BOMB.append(b"".join(parts) + packer.flush())
    return _BOMB[0]


def png_file(data: bytes, luck: Luck) -> bytes:
    """Another size in the header of a PNG, its checksum made to match."""
    if data[:4] != b"\x89PNG":
        return data
    sides = struct.pack(">II", *luck.choice([(0, 0), (1, 2**31 - 1), (60_000, 60_000), (3, 5)]))
    head = b"IHDR" + sides + data[24:29]
    return data[:12] + head + struct.pack(">I", zlib.crc32(head)) + data[33:]


def pickled(data: bytes, luck: Luck) -> bytes:
    """A pickle that runs a command, nests deeply, refers to nothing or claims much."""
    evil = [
        pickle.dumps(Dangerous(), protocol=luck.choice([0, 2, 4])),
        pickle.dumps({b"data": Dangerous(), b"labels": [1]}, protocol=2),
        b"\x80\x02" + b"]" * 30_000 + b"a" * 29_999 + b".",
        b"\x80\x02h\xff.",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",
        b"cos\nsystem\n(S'touch x'\ntR.",
        b"\x80\x02cnumpy\nndarray\n(K\x00\x85tR.",
    ]
    return luck.choice(evil)


def swap_files(folder: Path, luck: Luck) -> None:
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink()]
    if len(files) > 1:
        one, two = luck.sample(files, 2)
        a, b = one.read_bytes(), two.read_bytes()
        one.write_bytes(b)
        two.write_bytes(a)


def special(path: Path, luck: Luck) -> None:
    """A pipe, a device, a folder, a link, or nothing in the place of a file."""
    path.unlink()
    kind = luck.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to("/dev/zero")
    elif kind == 2:
        path.mkdir()
    elif kind == 3:
        path.symlink_to("nowhere")
    elif kind == 4:
        path.symlink_to(path.name)


# ---- what is read ----


@dataclass(frozen=True)
class Target:
    """A reader, good input for it, and how its input is changed.

    Args:
        name: of the reader.
        make: writes good input into a folder.
        read: reads the folder; returns how many samples it gave or listed as left out, or None.
        aware: changes that know the structure, of the bytes of a file whose name ends so.
        counts: returns how many samples the changed files declare, by other means than the
            reader's; None where that cannot be known, and the reader may give what it wants.
        needs: a package that the reader needs.
        texts: whether the input is one text, drawn anew for each case.
    """

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], int | None]
    aware: tuple[tuple[str, Callable[[bytes, Luck], bytes]], ...] = ()
    counts: Callable[[Path], int | None] | None = None
    needs: str = ""
    texts: bool = False


def given(data: Any) -> int:
    """Rows that a data set gives, all of them read, and those that it says it left out."""
    for start in range(0, len(data), 256):
        data[np.arange(start, min(start + 256, len(data)))]
    return len(data) + len(data.skipped)


def opened(name: str) -> Callable[[Path], int]:
    def read(folder: Path) -> int:
        from chiaroscuro.data import open_data

        return given(open_data(folder / name if name else folder))

    return read


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(ROWS, 5)).astype(np.float32),
        "labels": np.arange(ROWS) % 3,
        "ids": np.array([f"row {i}" for i in range(ROWS)]),
    }


def always(n: int) -> Callable[[Path], int]:
    return lambda folder: n


def lines_in(name: str, head: int = 0) -> Callable[[Path], int | None]:
    """Lines with anything on them, which is what a file of lines declares."""

    def count(folder: Path) -> int | None:
        if not is_plain(folder / name):
            return None
        data = (folder / name).read_bytes()
        try:
            data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        except (OSError, EOFError, zlib.error):
            return None
        if len(data) > 1 << 24 or (b'"' in data and name.endswith("csv")):
            return None  # a bomb; or cells that may hold line ends
        return sum(bool(line.strip()) for line in data.split(b"\n")) - head

    return count


def is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def image(seed: int, kind: str = "PNG") -> bytes:
    from PIL import Image

    rng = np.random.default_rng(seed)
    out = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(out, kind)
    return out.getvalue()


def make_npz(folder: Path) -> None:
    np.savez(folder / "a.npz", **arrays())


def make_npy(folder: Path) -> None:
    np.save(folder / "a.npy", arrays()["x"])


def make_text(folder: Path) -> None:
    (folder / "a.txt").write_text("".join(f"sentence {i} é\n" for i in range(ROWS)))


def make_text_gz(folder: Path) -> None:
    (folder / "a.txt.gz").write_bytes(
        gzip.compress(b"".join(b"line %d\n" % i for i in range(ROWS)))
    )


def make_csv(folder: Path) -> None:
    rows = "".join(f"{i},{i / 7:.3f},{'ab'[i % 2]}\n" for i in range(ROWS))
    (folder / "a.csv").write_text("one,two,label\n" + rows)


def make_pairs(folder: Path) -> None:
    for i in range(ROWS):
        (folder / f"{i}.png").write_bytes(image(i))
    lines = (json.dumps({"image": f"{i}.png", "captions": [f"a {i}", "b"]}) for i in range(ROWS))
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")


def make_pairs_gz(folder: Path) -> None:
    np.savez(folder / "a.npz", images=np.zeros((ROWS, 8, 8, 3), np.uint8))
    lines = "\n".join(json.dumps({"id": i, "caption": f"c {i}"}) for i in range(ROWS)) + "\n"
    (folder / "a_captions.jsonl.gz").write_bytes(gzip.compress(lines.encode()))


def make_folder(folder: Path) -> None:
    for i in range(ROWS):
        place = folder / "ab"[i % 2]
        place.mkdir(exist_ok=True)
        (place / f"{i}.{'png' if i % 3 else 'jpg'}").write_bytes(
            image(i, "PNG" if i % 3 else "JPEG")
        )


def count_folder(folder: Path) -> int:
    found = [p for p in folder.rglob("*.*") if p.is_symlink() or not p.is_dir()]
    return sum(p.suffix in (".png", ".jpg") for p in found)


def make_tar(folder: Path) -> None:
    with tarfile.open(folder / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for i in range(ROWS):
            files = {"png": image(i), "cls": str(i % 3).encode()}
            if i % 4 == 0:
                files["json"] = json.dumps({"caption": f"number {i}"}).encode()
            for kind, content in files.items():
                member = tarfile.TarInfo(f"{'long' * 40 if i == 5 else ''}{i:04d}.{kind}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def make_tar_gz(folder: Path) -> None:
    make_tar(folder)
    data = (folder / "a.tar").read_bytes()
    (folder / "a.tar").unlink()
    (folder / "a.tar.gz").write_bytes(gzip.compress(data))


def read_tars(name: str) -> Callable[[Path], int]:
    def read(folder: Path) -> int:
        from chiaroscuro.data import read_tar, tar_samples

        n = given(read_tar(folder / name, texts=False))
        return min(n, sum(1 for _ in tar_samples(folder / name)))

    return read


def headers(data: bytes) -> set[bytes]:
    """The blocks that are headers with a checksum that is right."""
    blocks = (data[at : at + 512] for at in range(0, len(data), 512))
    found = (b for b in blocks if b[257:262] == b"ustar")
    return {b for b in found if b[148:154].strip(b" \0") == checksum(b)}


def checksum(block: bytes) -> bytes:
    return f"{sum(block[:148]) + 256 + sum(block[156:]):06o}".encode()


_HEADERS: set[bytes] = set()
_END: list[int] = []


def count_tar(folder: Path) -> int | None:
    """All samples, unless a header says otherwise and its checksum agrees: that was forged."""
    if not _HEADERS:
        with tempfile.TemporaryDirectory() as place:
            make_tar(Path(place))
            whole = (Path(place) / "a.tar").read_bytes()
            _HEADERS.update(headers(whole))
            _END.append(len(whole.rstrip(b"\0")))
    path = next(folder.glob("a.tar*"), None)
    if path is None or not is_plain(path):
        return None
    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error):
        return None
    shorter = len(data.rstrip(b"\0")) < _END[0]  # ends in zeros sooner: a whole, shorter one
    return None if len(data) > 1 << 24 or shorter or headers(data) - _HEADERS else ROWS


def make_mnist(folder: Path) -> None:
    def idx(array: np.ndarray) -> bytes:
        head = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">I", s) for s in array.shape)
        return head + array.tobytes()

    for side in ("train", "t10k"):
        images = np.zeros((ROWS // 2, 28, 28), np.uint8)
        (folder / f"{side}-images-idx3-ubyte").write_bytes(idx(images))
        labels = np.arange(ROWS // 2, dtype=np.uint8)
        (folder / f"{side}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))


def make_cifar(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        record = rng.integers(0, 10, (2, 3073), dtype=np.uint8)
        (folder / f"{name}.bin").write_bytes(record.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n")


def count_cifar(folder: Path) -> int | None:
    sizes = [p.stat().st_size for p in folder.glob("*.bin") if is_plain(p)]
    return None if any(size % 3073 for size in sizes) else sum(sizes) // 3073


def make_cifar_python(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]:
        batch = {b"data": rng.integers(0, 255, (2, 3072), dtype=np.uint8), b"labels": [1, 2]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    meta = {b"label_names": [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"j"]}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))


def make_tiny(folder: Path) -> None:
    (folder / "wnids.txt").write_text("n01\nn02\n")
    (folder / "words.txt").write_text("n01\tfish, gold\nn02\tfrog\n")
    notes = []
    for wnid in ("n01", "n02"):
        place = folder / "train" / wnid / "images"
        place.mkdir(parents=True)
        names = [f"{wnid}_{i}.JPEG" for i in range(4)]
        for i, name in enumerate(names):
            (place / name).write_bytes(image(i, "JPEG"))
        boxes = "".join(f"{name}\t0\t0\t7\t7\n" for name in names)
        (place.parent / f"{wnid}_boxes.txt").write_text(boxes)
    (folder / "val" / "images").mkdir(parents=True)
    for i in range(4):
        (folder / "val" / "images" / f"val_{i}.JPEG").write_bytes(image(i, "JPEG"))
        notes.append(f"val_{i}.JPEG\tn0{1 + i % 2}\t0\t0\t7\t7")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(notes) + "\n")


def read_tiny(folder: Path) -> int:
    from chiaroscuro.data import read_tiny_imagenet

    return given(read_tiny_imagenet(folder))


def make_corpus(folder: Path) -> None:
    (folder / "a.txt").write_text("the cat sat on the mat\n" * 40)
    rows = "word1\tword2\tpos\tsense_rank1\tsense_rank2\nbig\tlarge\ta\t1\t2\n"
    (folder / "b.tsv").write_text(rows)


def read_corpora(folder: Path) -> None:
    from chiaroscuro.data import read_corpus, read_synonyms

    read_corpus(folder / "a.txt")
    read_synonyms(folder / "b.tsv")


def make_parquet(folder: Path) -> None:
    import pyarrow
    from pyarrow import feather, parquet

    known = arrays()
    table = pyarrow.table({"a": known["x"][:, 0], "b": known["x"][:, 1], "label": known["labels"]})
    parquet.write_table(table, folder / "a.parquet", row_group_size=5)
    feather.write_feather(table, folder / "a.feather", compression="uncompressed")


def read_arrow(folder: Path) -> int:
    from chiaroscuro.data import open_data

    return min(given(open_data(folder / f"a.{kind}")) for kind in ("parquet", "feather"))


def make_archive(folder: Path) -> None:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for i in range(3):
            archive.writestr(f"top/{i}.txt", f"{i}" * 50)
    with tarfile.open(folder / "a.tar.gz", "w:gz") as packed:
        for i in range(3):
            member = tarfile.TarInfo(f"top/{i}.txt")
            member.size = 50
            packed.addfile(member, io.BytesIO(b"x" * 50))


def read_archive(folder: Path) -> None:
    from chiaroscuro.data.download import unpack

    for name in ("a.zip", "a.tar.gz"):
        unpack(folder / name, folder / f"{name}.out")


# ---- artifacts ----


def make_embeddings(folder: Path) -> None:
    from chiaroscuro.artifacts import Embeddings

    known = arrays()
    Embeddings(ids=known["ids"], h=known["x"], z=known["x"][:, :3], labels=known["labels"]).save(
        folder / "a.npz"
    )
    np.save(folder / "a.npy", known["x"])


def read_embeddings(folder: Path) -> int:
    from chiaroscuro.artifacts import Embeddings

    return min(len(Embeddings.load(folder / f"a.{kind}").h) for kind in ("npz", "npy"))


def make_weights(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    weights = torch.nn.Linear(4, 3).state_dict()
    save_file(weights, folder / "a.safetensors")
    torch.save({"state_dict": weights}, folder / "a.pt")


def read_weights(folder: Path) -> int:
    import torch

    from chiaroscuro.models import load_weights

    found = []
    for name in ("a.safetensors", "a.pt"):
        match = load_weights(torch.nn.Linear(4, 3), folder / name, partial=True)
        found.append(len(match.loaded) + len(match.missing) + len(match.other_shape))
    return min(found)


def make_checkpoint(folder: Path) -> None:
    from chiaroscuro.artifacts import checkpoints

    arrays_ = {"w": np.ones((3, 4), np.float32), "n": np.arange(5)}
    for step in (2, 4):
        checkpoints.save(folder / "checkpoints", step, arrays_, {"epoch": step, "deep": {"a": [1]}})


def read_checkpoint(folder: Path) -> None:
    from chiaroscuro.artifacts import checkpoints

    match_manifests(folder / "checkpoints")
    checkpoints.latest_good(folder / "checkpoints")


def match_manifests(folder: Path) -> None:
    """Make sizes, checksums and names of changed checkpoints agree, so that all of it is read."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        manifest = path / "manifest.json"
        if not manifest.is_file() or manifest.is_symlink():
            continue
        try:
            about = json.loads(manifest.read_bytes())
            for name in about["files"]:
                if not is_plain(path / name):
                    raise OSError("no file of a checkpoint")
                data = (path / name).read_bytes()
                digest = hashlib.sha256(data).hexdigest()
                about["files"][name] = {"bytes": len(data), "sha256": digest}
            text = json.dumps(about, sort_keys=True, indent=1).encode()
        except (OSError, ValueError, LookupError, TypeError, RecursionError, AttributeError):
            text = manifest.read_bytes()  # its name is made to match all the same
        if text != manifest.read_bytes():
            manifest.write_bytes(text)
        head = path.name.rpartition("-")[0]
        with contextlib.suppress(OSError):
            path.rename(folder / f"{head}-{hashlib.sha256(text).hexdigest()[:32]}")


def make_run(folder: Path) -> None:
    from chiaroscuro.artifacts import Embeddings, Run
    from chiaroscuro.engine import read_settings

    small = ["network.encoder=MLP(d_in=5, d=4)", "network.projector=Projector(d=3)", "epochs=3"]
    small += ["views.first=Jitter(noise=0.1)", "data.source=nowhere.npz", "batch=8"]
    settings = read_settings("simclr", small)
    run = Run.create(folder / "run", settings.table())
    for step in range(1, 4):
        entry = {"step": step, "epoch": step, "mean_loss": 3.0 / step, "seconds": 1.0 * step}
        run.append({**entry, "online_knn": 0.5}, durable=False)
    run.write_diagnosis({"findings": [{"rule": "collapse", "severity": 2, "evidence": "rank 1"}]})
    run.write_evaluation({"results": {"encoder": {"knn_20": 0.4}}})
    known = arrays()
    Embeddings(ids=known["ids"], h=known["x"], labels=known["labels"]).save(run.embeddings("test"))


def read_run(folder: Path) -> int:
    """The list, the page and the records of a run."""
    from chiaroscuro.artifacts import Run
    from chiaroscuro.report.document import document
    from chiaroscuro.report.listing import Listing
    from chiaroscuro.report.page import page
    from chiaroscuro.report.subject import subjects

    rows = Listing(folder).rows()
    json.dumps(rows, allow_nan=False).encode()
    history = Run(folder / "run").history()
    page(document(subjects([folder / "run"]), 2000, ("pca",))).encode()
    return len(history.records) + len(history.problems)


def make_pretrained(folder: Path) -> None:
    import torch

    from chiaroscuro.exporting import Pretrained, save_pretrained
    from chiaroscuro.models import MLP, Projector

    torch.manual_seed(0)
    save_pretrained(Pretrained(MLP(d_in=5, d=4), Projector(d_in=4, d=3), None), folder / "model")


def read_pretrained(folder: Path) -> None:
    from chiaroscuro.exporting import load_pretrained

    load_pretrained(folder / "model")


def make_settings(folder: Path) -> None:
    from chiaroscuro.engine.read_settings import preset_text

    (folder / "a.toml").write_text(preset_text("digits"))


def read_settings_file(folder: Path) -> None:
    from chiaroscuro.engine import read_settings

    read_settings(folder / "a.toml")


# ---- embeddings, histories and settings of other tools ----


def make_tables(folder: Path) -> None:
    import pyarrow
    import torch
    from pyarrow import feather, parquet
    from safetensors.numpy import save_file

    known = arrays()
    rows = "".join(f"{i},{x[0]:.4f},{x[1]:.4f},{'ab'[i % 2]}\n" for i, x in enumerate(known["x"]))
    (folder / "a.csv").write_text("id,one,two,label\n" + rows)
    save_file({"h": known["x"], "labels": known["labels"]}, folder / "a.safetensors")
    torch.save({"h": torch.tensor(known["x"]), "ids": known["ids"].tolist()}, folder / "a.pt")
    table = pyarrow.table({"embedding": list(known["x"]), "label": known["labels"]})
    parquet.write_table(table, folder / "a.parquet", row_group_size=5)
    feather.write_feather(table, folder / "a.arrow", compression="uncompressed")


def read_tables(folder: Path) -> int:
    from chiaroscuro.artifacts.sources import open_source, read_labels

    found = []
    for kind in ("csv", "safetensors", "pt", "parquet", "arrow"):
        source = open_source(folder / f"a.{kind}")
        source.take(np.arange(1))
        source.take(None)
        found.append(source.n)
    read_labels(folder / "a.csv", None, found[0])
    return found[0]


def make_logs(folder: Path) -> None:
    records = [{"step": i, "loss": 1 / (i + 1), "lr": 0.1} for i in range(ROWS)]
    (folder / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    (folder / "a.json").write_text(json.dumps({"log_history": records}))
    (folder / "a.csv").write_text(
        "step,loss\n" + "".join(f"{i},{1 / (i + 1)}\n" for i in range(ROWS))
    )
    (folder / "b.toml").write_text("batch_size = 8\n[optim]\nlearning_rate = 0.1\n")
    (folder / "b.json").write_text(json.dumps({"optim": {"lr": 0.1}, "batch_size": 8}))


def read_logs(folder: Path) -> None:
    from chiaroscuro.artifacts.logs import read_history, read_settings

    for kind in ("jsonl", "json", "csv"):
        read_history(folder / f"a.{kind}")
    for kind in ("toml", "json"):
        read_settings(folder / f"b.{kind}")


# ---- tuning ----

SEARCH = """
reduction = 2
[set]
objective = "InfoNCE(kernel=Gaussian(tau={{tau}}))"
epochs = 1
batch = 8
data.source = "{data}"
views.first = "Jitter(noise=0.3)"
network.encoder = "MLP(d_in=5, d=4)"
network.projector = "Projector(d=3, depth=1)"
optimiser.name = "adamw"
schedule.warmup = 0.0
[space]
tau = "LogUniform(0.01, 1.0)"
"""


def make_journal(folder: Path) -> None:
    """A search of two trials that has ended."""
    from chiaroscuro.tuning import tune

    rng, labels = np.random.default_rng(0), np.arange(60) % 3
    x = 2 * np.eye(3, 5)[labels] + rng.normal(size=(60, 5))
    np.savez(folder / "x.npz", x=x.astype(np.float32), labels=labels)
    (folder / "search.toml").write_text(SEARCH.format(data=folder / "x.npz"))
    tune(folder / "search.toml", 2, folder / "out")


def read_journal(folder: Path) -> int:
    from chiaroscuro.tuning import tune

    found = tune(folder / "search.toml", 2, folder / "out", resume=True)
    return len(found.trials)


# ---- texts ----


def read_notation(text: str) -> None:
    import chiaroscuro

    chiaroscuro.parse(text)


def read_override(text: str) -> None:
    from chiaroscuro.engine import read_settings

    read_settings("digits", [text])


def override(luck: Luck) -> str:
    keys = ["objective", "optimiser.lr", "epochs", "network.encoder", "a.b.c", "", "views", "seed"]
    kind = luck.randrange(3)
    value = notation(luck) if kind else luck.choice(TOML)
    return f"{luck.choice(keys)}{luck.choice(['=', '=', '=', '==', ''])}{value}"


# ---- requests ----

SECRET = "do-not-show-this"


def make_view(folder: Path) -> None:
    (folder / "served").mkdir()
    make_run(folder / "served")
    (folder / "secret.txt").write_text(SECRET)
    (folder / "served" / "link").symlink_to(folder / "secret.txt")


def request(folder: Path, luck: Luck) -> None:
    """One request to the application of the live view, as a server would hand it on."""
    from chiaroscuro.report.listing import Listing
    from chiaroscuro.report.server import app

    listing = Listing(folder / "served")
    known = listing.rows()[0]["id"]
    token, port = "t0ken", 8123
    made = app(listing, token, port)
    run = luck.choice([known, known, "../secret.txt", "%2e%2e/secret.txt", "", "x" * 5000, "\0"])
    query = [f"token={luck.choice([token, token, token, 'x', ''])}", f"run={run}"]
    query += luck.choice([[], [], ["run=" + known] * 40, ["token=t0ken"], ["%ff=%ff"]])
    luck.shuffle(query)
    paths = ["/", "/report", "/events", "/secret.txt", "/../secret.txt", "/%2e%2e/secret.txt"]
    hosts = [b"127.0.0.1:8123"] * 4 + [b"evil.example", b"", b"127.0.0.1:8123\0", b"\xff"]
    headers = [(b"host", luck.choice(hosts))]
    headers += luck.choice([[], [], [(b"origin", b"http://evil.example")], [(b"host", b"x")]])
    headers += luck.choice([[], [(b"sec-fetch-site", b"cross-site")], [(b"x" * 9000, b"y" * 9000)]])
    raw = "&".join(query).encode("latin-1", "replace")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": luck.choice(["GET", "GET", "GET", "POST", "PUT", "HEAD", "TRACE", "\0"]),
        "path": luck.choice(paths),
        "raw_path": b"/",
        "root_path": "",
        "scheme": "http",
        "query_string": bytes(flipped(raw, luck)) if luck.random() < 0.3 else raw,
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", port),
    }
    messages: list[dict[str, Any]] = []

    asked: list[None] = []

    async def receive() -> dict[str, Any]:
        asked.append(None)
        while len(asked) > 1 and not messages:  # the client leaves once it is answered
            await asyncio.sleep(0.001)
        return {"type": "http.disconnect" if messages else "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    asyncio.run(asyncio.wait_for(made(scope, receive, send), SECONDS))
    status = messages[0]["status"]
    body = b"".join(m.get("body", b"") for m in messages)
    if SECRET.encode() in body:
        raise AssertionError("a file outside the folder was shown")
    if status >= 500:
        raise AssertionError(f"status {status}: {body[:200]!r}")
    allowed = headers[0][1] == hosts[0] and len(headers) == 1
    if status == 200 and not allowed and b"evil" in b"".join(v for _, v in headers):
        raise AssertionError("a foreign site was answered")


def flipped(raw: bytes, luck: Luck) -> bytearray:
    data = bytearray(raw)
    flip(data, luck)
    return data


def text_target(name: str, draw: Callable[[Luck], str], read: Callable[[str], None]) -> Target:
    """A reader of texts: the text is drawn into a file, so that a case is one like the others."""

    def make(folder: Path) -> None:
        (folder / "text").write_text("")

    def from_file(folder: Path) -> None:
        read((folder / "text").read_bytes().decode("utf-8", "surrogatepass"))

    def write(data: bytes, luck: Luck) -> bytes:
        return draw(luck).encode("utf-8", "surrogatepass")

    return Target(name, make, from_file, (("text", write),), texts=True)


def ask(folder: Path) -> None:
    request(folder, Luck((folder / "text").read_text()))


def make_ask(folder: Path) -> None:
    make_view(folder)
    (folder / "text").write_text("")


def draw_seed(data: bytes, luck: Luck) -> bytes:
    return str(luck.random()).encode()


JSON = (".json", json_file)
TENSORS = (".safetensors", safetensors_file)
TARGETS = [
    Target("npz", make_npz, opened("a.npz"), ((".npz", npz_file),), always(ROWS)),
    Target("npy", make_npy, opened("a.npy"), ((".npy", npy_header),), always(ROWS)),
    Target("text", make_text, opened("a.txt"), (), lines_in("a.txt")),
    Target(
        "text.gz", make_text_gz, opened("a.txt.gz"), ((".gz", gzip_file),), lines_in("a.txt.gz")
    ),
    Target("csv", make_csv, opened("a.csv"), (), lines_in("a.csv", 1)),
    Target(
        "pairs",
        make_pairs,
        opened("a.jsonl"),
        ((".jsonl", json_lines), (".png", png_file)),
        lines_in("a.jsonl"),
    ),
    Target(
        "pairs.gz",
        make_pairs_gz,
        opened("a_captions.jsonl.gz"),
        ((".gz", gzip_file), (".npz", npz_file)),
        lines_in("a_captions.jsonl.gz"),
    ),
    Target("folder", make_folder, opened(""), ((".png", png_file),), count_folder),
    Target("tar", make_tar, read_tars("a.tar"), ((".tar", tar_file),), count_tar),
    Target("tar.gz", make_tar_gz, read_tars("a.tar.gz"), ((".gz", gzip_file),), count_tar),
    Target("mnist", make_mnist, opened(""), ((".gz", gzip_file),), always(ROWS)),
    Target("cifar", make_cifar, opened(""), (), count_cifar),
    Target("cifar python", make_cifar_python, opened(""), (("", pickled),), always(12)),
    Target("tiny imagenet", make_tiny, read_tiny, (("", png_file),), always(12)),
    Target("corpus", make_corpus, read_corpora),
    Target("parquet", make_parquet, read_arrow, (), always(ROWS), "pyarrow"),
    Target("archive", make_archive, read_archive, ((".zip", npz_file), (".gz", gzip_file))),
    Target(
        "embeddings",
        make_embeddings,
        read_embeddings,
        ((".npz", npz_file), (".npy", npy_header)),
        always(ROWS),
    ),
    Target("weights", make_weights, read_weights, (TENSORS, (".pt", pickled)), always(2)),
    Target("checkpoint", make_checkpoint, read_checkpoint, (JSON, TENSORS)),
    Target(
        "run",
        make_run,
        read_run,
        (JSON, (".jsonl", json_lines), (".toml", toml_file), (".npz", npz_file)),
        lines_in("run/history.jsonl"),
    ),
    Target("pretrained", make_pretrained, read_pretrained, (JSON, TENSORS)),
    Target(
        "tables of embeddings",
        make_tables,
        read_tables,
        (TENSORS, (".pt", pickled)),
        lines_in("a.csv", 1),
        needs="pyarrow",
    ),
    Target(
        "logs",
        make_logs,
        read_logs,
        (JSON, (".jsonl", json_lines), (".toml", toml_file)),
    ),
    Target("settings", make_settings, read_settings_file, ((".toml", toml_file),)),
    Target(
        "journal",
        make_journal,
        read_journal,
        (("journal.log", json_lines), ("trials.json", json_file), (".toml", toml_file)),
        always(2),
        "optuna",
    ),
    text_target("notation", notation, read_notation),
    text_target("override", override, read_override),
    Target("request", make_ask, ask, (("text", draw_seed),), needs="starlette", texts=True),
]
RARE = {"journal"}
"""Take a second each: one case in eight of the others'."""


# ---- one case ----


def is_here(target: Target) -> bool:
    import importlib.util

    return not target.needs or importlib.util.find_spec(target.needs) is not None


def wanted(targets: list[Target], only: list[str]) -> list[Target]:
    return [t for t in targets if not only or t.name in only]


def target_of(case: int, targets: list[Target]) -> Target:
    target = targets[case % len(targets)]
    if target.name in RARE and case // len(targets) % 8:
        return targets[(case // len(targets)) % len(targets)]
    return target


def change(target: Target, folder: Path, luck: Luck) -> None:
    """Change one file of a folder, once or a few times."""
    files = sorted(p for p in folder.rglob("*") if is_plain(p) and p.name != "writer.lock")
    path = luck.choice(files)
    if target.texts:
        path = folder / "text"
    elif luck.random() < 0.05:
        return special(path, luck)
    elif luck.random() < 0.03:
        return swap_files(folder, luck)
    aware = [f for end, f in target.aware if end and path.name.endswith(end)]
    aware = aware or [f for end, f in target.aware if end == ""]
    for _ in range(1 if target.texts else luck.choice([1, 1, 1, 2, 3])):
        data = path.read_bytes()
        new = bytearray(data)
        if aware and (target.texts or luck.random() < 0.5):
            try:
                new = bytearray(luck.choice(aware)(data, luck))
            except (ValueError, LookupError, OSError, EOFError, struct.error, zlib.error):
                luck.choice(BYTES)(new, luck)  # an earlier change has left no structure
            except (zipfile.BadZipFile, RuntimeError, TypeError, AttributeError):
                luck.choice(BYTES)(new, luck)
        else:
            luck.choice(BYTES)(new, luck)
        path.write_bytes(new)
    return None


class Late(BaseException):
    """A case takes too long."""


WATCHED = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "os.spawn"}
WATCHED |= {"socket.connect", "ctypes.dlopen", "pickle.find_class", "pty.spawn"}


class Guard:
    """Notes what a case must not do, while it is on."""

    def __init__(self, inside: Path):
        self.inside, self.on = str(inside), False
        self.seen: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, values: tuple) -> None:
        if not self.on:
            return
        if event in WATCHED:
            self.seen.append(f"{event}: {str(values)[:200]}")
        elif event == "open" and isinstance(values[2], int) and values[2] & 0o3:
            path = os.path.abspath(os.fsdecode(values[0])) if not isinstance(values[0], int) else ""
            if path and not path.startswith((self.inside, "/dev/null", "/proc/self")):
                self.seen.append(f"{path} was written")


def run_case(
    case: int, seed: int, targets: list[Target], good: Path, guard: Guard, limit: float = SECONDS
) -> dict[str, Any]:
    """Change, read and judge; what came of it."""
    target = target_of(case, targets)
    work = Path(guard.inside) / "case"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(good / target.name, work, symlinks=True)
    change(target, work, Luck(f"{seed}/{case}"))
    declared = target.counts(work) if target.counts else None
    os.chdir(work)
    Path("/proc/self/clear_refs").write_text("5")
    guard.seen.clear()
    found: dict[str, Any] = {"case": case, "target": target.name, "came": "read"}
    start, cpu = time.monotonic(), time.process_time()
    signal.setitimer(signal.ITIMER_REAL, limit)
    guard.on = True
    try:
        n = target.read(work)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if declared is not None and n is not None and n < declared:
            found["lost"] = f"{n} of {declared}"
    except Late:
        found["late"] = True
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged
        signal.setitimer(signal.ITIMER_REAL, 0)
        found["came"] = "refused"
        judge(error, found)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        guard.on = False
    found["seconds"] = round(time.monotonic() - start, 2)
    found["cpu"] = round(time.process_time() - cpu, 2)
    status = Path("/proc/self/status").read_text()
    found["mb"] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024  # type: ignore[index]
    ran = [*guard.seen, *(["the canary was written"] if list(work.rglob(CANARY)) else [])]
    if ran:
        found["ran"] = ran[:3]
    return found


def judge(error: BaseException, found: dict[str, Any]) -> None:
    from chiaroscuro.errors import ChiaroError

    if not isinstance(error, ChiaroError):
        lines = traceback.format_exception(error)
        found["traceback"] = "".join(lines)[-1500:]
    elif "\n" in str(error) or not str(error).strip():
        found["traceback"] = f"not one line: {str(error)[:300]!r}"
    elif len(str(error)) > 3000:
        found["traceback"] = f"a sentence of {len(str(error))} letters: {str(error)[:300]!r}"


def too_late(*_: Any) -> None:
    if sys._getframe(1).f_code.co_filename != __file__:  # it struck when all was over
        raise Late


def warm(targets: list[Target], good: Path, work: Path) -> None:
    """Read the good input once: what readers load when they are first used is loaded now."""
    threadpool_info()
    for target in targets:
        shutil.rmtree(work / "warm", ignore_errors=True)
        shutil.copytree(good / target.name, work / "warm", symlinks=True)
        if not target.texts:
            target.read(work / "warm")


def work_through(call: argparse.Namespace) -> None:
    """Run cases in this process, one line of JSON for each; called by `main` in another."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    targets = [t for t in TARGETS if is_here(t)]
    signal.signal(signal.SIGALRM, too_late)
    guard = Guard(Path(call.work).resolve())
    warm(wanted(targets, call.only), call.good, Path(call.work))
    errors = os.fdopen(os.dup(2), "w")
    os.dup2(1, 2)
    sys.excepthook = lambda *what: traceback.print_exception(*what, file=errors)
    for case in json.loads(call.numbers.read_text()):
        if target_of(case, targets) not in wanted(targets, call.only):
            continue
        faulthandler.dump_traceback_later(30 * SECONDS, file=errors)
        print(json.dumps({"begins": case}), file=out)
        found = run_case(case, call.seed, targets, call.good, guard)
        for _ in range(3):
            # a machine that is busy elsewhere is no hang: again, by the processor's clock
            if found.get("late"):
                found = run_case(case, call.seed, targets, call.good, guard, 6 * SECONDS)
        if found.get("late") or found["cpu"] > SECONDS:
            found["hang"] = found["seconds"]
        print(json.dumps(found), file=out)


# ---- all cases ----


def drive(call: argparse.Namespace, place: Path) -> Iterator[dict[str, Any]]:
    """Run the cases in processes of their own; one that dies or hangs is replaced."""
    before = [one for path in call.log for one in logged(path)]
    yield from before
    known = {one["case"] for one in before}
    left = [case for case in range(call.begin, call.cases) if case not in known]
    yield from drive_cases(call, place, left)


def drive_cases(call: argparse.Namespace, place: Path, left: list[int]) -> Iterator[dict[str, Any]]:
    environment = os.environ | {
        "CHIARO_MEMORY": f"{call.limit}MB",
        "XDG_CACHE_HOME": str(place / "work" / "cache"),
        "CHIARO_DATA": str(place / "none"),
        "HOME": str(place / "home"),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    while left:
        (place / "numbers").write_text(json.dumps(left[:PART]))
        words = [
            sys.executable,
            __file__,
            "--work",
            str(place / "work"),
            "--good",
            str(place / "good"),
        ]
        words += ["--numbers", str(place / "numbers"), "--seed", str(call.seed)]
        words += ["--only", *call.only] if call.only else []
        shutil.rmtree(place / "work" / "cache", ignore_errors=True)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
            begun, ended = -1, 0
            timer = Watchdog(process)
            for line in process.stdout or ():
                timer.seen()
                found = json.loads(line)
                if "begins" in found:
                    begun = found["begins"]
                else:
                    ended = left.index(found["case"]) + 1
                    yield found
            status = process.wait()
            timer.stop()
        if status == 0:
            left = left[PART:]
            continue
        if begun not in left[ended:]:
            raise SystemExit(f"the process ended with {status} before its first case")
        what = {"hang": timer.limit} if timer.fired else {"traceback": f"ended with {status}"}
        yield {"case": begun, "target": "?", "came": "died", "mb": 0, "cpu": 0, **what}
        left = left[left.index(begun) + 1 :]


def logged(path: Path) -> list[dict[str, Any]]:
    """The cases of a log, but for a last line that was torn."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


class Watchdog:
    """Kills a process that says nothing for a time, in which this one was not stopped itself."""

    limit = 60 * SECONDS

    def __init__(self, process: subprocess.Popen):
        import threading

        self.process, self.fired, self.silent = process, False, 0
        self.done = threading.Event()
        threading.Thread(target=self.watch, daemon=True).start()

    def seen(self) -> None:
        self.silent = 0

    def watch(self) -> None:
        while not self.done.wait(1):
            self.silent += 1
            if self.silent > self.limit:
                self.fired = True
                self.process.kill()
                return

    def stop(self) -> None:
        self.done.set()


def make_all(good: Path, only: list[str]) -> list[str]:
    """Write the good input of every reader that is here; the names of those that are not."""
    missing = []
    for target in TARGETS:
        if only and target.name not in only:
            continue
        if not is_here(target):
            missing.append(f"{target.name} (needs {target.needs})")
            continue
        (good / target.name).mkdir(parents=True, exist_ok=True)
        target.make(good / target.name)
    return missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="names of readers")
    parser.add_argument("--limit", type=int, default=128, help="`CHIARO_MEMORY` in MB")
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--begin", type=int, default=0, help="first case")
    parser.add_argument(
        "--log", type=Path, nargs="+", default=[], help="a line for each case, to the first of them"
    )
    parser.add_argument("--json", action="store_true", help="print the result, save nothing")
    for name in ("--work", "--good", "--numbers"):
        parser.add_argument(name, type=Path, help=argparse.SUPPRESS)
    call = parser.parse_args()
    if call.case is not None:
        call.begin, call.cases = call.case, call.case + 1
    if call.work is not None:
        return work_through(call)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chiaro-fuzz-") as name:
        place = Path(name).resolve()
        for folder in ("work", "home", "none"):
            (place / folder).mkdir()
        missing = make_all(place / "good", call.only)
        kept: dict[str, list[dict[str, Any]]] = {
            kind: [] for kind in ("traceback", "hang", "ran", "lost")
        }
        came: dict[str, Counter[str]] = {}
        peak, slowest, cases = 0, 0.0, 0
        cpu: Counter[str] = Counter()
        known = sum(len(logged(path)) for path in call.log)
        for found in drive(call, place):
            cases += 1
            cpu[found["target"]] += found["cpu"]
            if call.log and cases > known:
                with call.log[0].open("a") as log:
                    log.write(json.dumps(found) + "\n")
            came.setdefault(found["target"], Counter())[found["came"]] += 1
            peak, slowest = max(peak, found["mb"]), max(slowest, found["cpu"])
            for kind, list_ in kept.items():
                if kind in found:
                    list_.append(found)
                    print(json.dumps(found), file=sys.stderr, flush=True)
            if found["mb"] > MOST_MB:
                print(json.dumps(found), file=sys.stderr, flush=True)
    result = {
        "cases": cases,
        "seed": call.seed,
        "limit_mb": call.limit,
        "tracebacks": len(kept["traceback"]),
        "hangs": len(kept["hang"]),
        "executions": len(kept["ran"]),
        "lost_in_silence": len(kept["lost"]),
        "peak_mb": peak,
        "slowest_cpu_seconds": slowest,
        "cpu_seconds_by_reader": {name: round(cpu[name], 1) for name in sorted(cpu)},
        "by_reader": {name: dict(sorted(c.items())) for name, c in sorted(came.items())},
        "readers_not_here": missing,
        "examples": {kind: list_[:20] for kind, list_ in kept.items() if list_},
        "seconds": round(time.monotonic() - start),
    }
    print(json.dumps(result, indent=1))
    well = not any(kept.values()) and peak <= MOST_MB
    if cases >= 20_000 and not call.only and not call.json:
        sys.path.insert(0, str(Path(__file__).parent))
        from environment import save

        print(save("fuzz", result, f"python benchmarks/fuzz.py --cases {cases} --seed {call.seed}"))
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
