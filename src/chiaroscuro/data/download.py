"""`chiaro data get`: official files with progress, resume and checksum. The only use of the
network.

A file arrives as `NAME.part`, is resumed by HTTP Range after a cut, and gets its name only when its
checksum is right; an archive is unpacked beside its place and moved there whole. So what has its
name is complete. Standard library only.
"""

from __future__ import annotations

import dataclasses
import email.message
import hashlib
import http.client
import lzma
import os
import re
import shutil
import ssl
import stat
import struct
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from chiaroscuro.artifacts.bounded import open_regular
from chiaroscuro.artifacts.numpy_files import all_listed
from chiaroscuro.data.cifar import CIFAR_FOLDERS
from chiaroscuro.data.mnist import MNIST_FILES
from chiaroscuro.data.places import home
from chiaroscuro.data.tars import StrictHeader
from chiaroscuro.data.tinyimagenet import TINY_FOLDER
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["OFFICIAL", "Official", "Remote", "get", "unpack"]

TRIES = 5
PAUSE = 1.0  # seconds before the second try; doubled for each further one
TIMEOUT = 30.0
CHUNK = 1 << 18
MAX_UNPACKED = 1 << 33

Progress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes that are there and the bytes there will be."""


@dataclasses.dataclass(frozen=True)
class Remote:
    """One file: its name, length in bytes and digest, `sha256:...`."""

    file: str
    size: int
    digest: str


@dataclasses.dataclass(frozen=True)
class Official:
    """A dataset as its makers publish it.

    `urls` are the folders that hold the files, tried in order; `folder` is where they end up;
    `published` says where the digests come from.
    """

    urls: tuple[str, ...]
    files: tuple[Remote, ...]
    folder: str
    published: str
    archive: bool


def _sha256(digest: str) -> str:
    return f"sha256:{digest}"


_TORONTO = ("https://www.cs.toronto.edu/~kriz/",)
_KRIZ = "the files of https://www.cs.toronto.edu/~kriz/cifar.html, with its md5"
OFFICIAL: dict[str, Official] = {
    "cifar10": Official(
        _TORONTO,
        (
            Remote(
                "cifar-10-binary.tar.gz",
                170052171,
                _sha256("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
            ),
        ),
        CIFAR_FOLDERS["cifar10"][0],
        _KRIZ,
        archive=True,
    ),
    "cifar100": Official(
        _TORONTO,
        (
            Remote(
                "cifar-100-binary.tar.gz",
                168513733,
                _sha256("58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
            ),
        ),
        CIFAR_FOLDERS["cifar100"][0],
        _KRIZ,
        archive=True,
    ),
    "tiny_imagenet": Official(
        ("https://cs231n.stanford.edu/",),
        (
            Remote(
                "tiny-imagenet-200.zip",
                248100043,
                _sha256("6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"),
            ),
        ),
        TINY_FOLDER,
        "no page of its makers; the digest that loaders of the archive agree on",
        archive=True,
    ),
    "mnist": Official(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        tuple(
            Remote(f"{name}.gz", size, _sha256(digest))
            for name, size, digest in zip(
                MNIST_FILES.values(),
                (9912422, 28881, 1648877, 4542),
                (
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
                strict=True,
            )
        ),
        "mnist",
        "the digests that mirrors and loaders of http://yann.lecun.com/exdb/mnist/ agree on",
        archive=False,
    ),
    "fashion_mnist": Official(
        ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",),
        tuple(
            Remote(f"{name}.gz", size, _sha256(digest))
            for name, size, digest in zip(
                MNIST_FILES.values(),
                (26421880, 29515, 4422102, 5148),
                (
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                ),
                strict=True,
            )
        ),
        "fashion_mnist",
        "the files of https://github.com/zalandoresearch/fashion-mnist, with its md5",
        archive=False,
    ),
}


class _CutError(Exception):
    """The connection ended early; what came is kept and the next try goes on from there."""


def get(
    name: str,
    root: str | Path | None = None,
    progress: Progress | None = None,
    base_url: str | None = None,
    official: Official | None = None,
) -> Path:
    """Download an official dataset and return its folder; existing files are not downloaded again.

    Args:
        name: `cifar10`, `cifar100`, `tiny_imagenet`, `mnist` or `fashion_mnist`.
        root: the folder that datasets live in; by default `CHIARO_DATA`, or the user's cache.
        progress: called as bytes arrive; by default one line on standard error.
        base_url: the folder to fetch the files from instead of the official one: a mirror.
        official: a description of other files, instead of the known ones.

    Example:
        >>> get("cifra10")
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.InputError: `cifra10` is not a dataset to download; these are:
        cifar10, cifar100, tiny_imagenet, mnist, fashion_mnist.
    """
    known = official or OFFICIAL.get(name)
    if known is None:
        raise InputError(
            f"`{name}` is not a dataset to download; these are: {', '.join(OFFICIAL)}."
        )
    top = Path(root).expanduser() if root is not None else home()
    folder = top / known.folder
    if known.archive and folder.is_dir():
        return folder
    place = top if known.archive else folder
    try:
        place.mkdir(parents=True, exist_ok=True)
        for remote in known.files:
            _fetch(name, known, remote, place, progress or _line(sys.stderr), base_url)
        if known.archive:
            archive = place / known.files[0].file
            unpack(archive, folder)
            archive.unlink()
    except OSError as error:
        raise ChiaroError(
            f"`chiaro data get {name}` cannot write to `{place}`: {error.strerror or error}. What "
            "has arrived is kept and will be resumed."
        ) from error
    return folder


# ---- one file ----


def _fetch(
    name: str,
    known: Official,
    remote: Remote,
    place: Path,
    progress: Progress,
    base_url: str | None,
) -> None:
    need(
        remote.digest.startswith("sha256:"),
        lambda: f"`{remote.file}` needs a sha256 to be fetched by; it has `{remote.digest}`.",
    )
    final, part = place / remote.file, place / f"{remote.file}.part"
    if final.is_file() and _digest(final, remote) == remote.digest:
        return
    bases = (base_url,) if base_url is not None else known.urls
    problems = []
    for base in bases:
        url = base.rstrip("/") + "/" + remote.file
        try:
            _require_https(url)
            resumed = part.exists()
            _transfer(url, remote, part, progress)
            digest = _digest(part, remote)
            if (
                digest != remote.digest and resumed
            ):  # the beginning may be of another file: once more
                part.unlink()
                _transfer(url, remote, part, progress)
                digest = _digest(part, remote)
            if digest != remote.digest:
                size = part.stat().st_size
                part.unlink()
                raise InputError(
                    f"`{url}` needs the digest {remote.digest} ({known.published}); what came, "
                    f"{size} bytes, has {digest}. It was removed."
                )
            os.replace(part, final)
            return
        except InputError as error:
            problems.append(str(error))
        except (urllib.error.URLError, _CutError, http.client.HTTPException, TimeoutError) as error:
            problems.append(f"{url}: {_reason(error)}")
    have = part.stat().st_size if part.exists() else 0
    kept = f" {have} of {remote.size} bytes are kept and will be resumed." if have else ""
    raise ChiaroError(
        f"`chiaro data get {name}` could not fetch `{remote.file}`: {'; '.join(problems)}.{kept} "
        f"Without a network, fetch it elsewhere and put it in `{place}`."
    )


def _transfer(url: str, remote: Remote, part: Path, progress: Progress) -> None:
    """Bring the part to its full length, going on after cuts."""
    pause = PAUSE
    for attempt in range(TRIES):
        if part.exists() and part.stat().st_size > remote.size:
            part.unlink()
        before = part.stat().st_size if part.exists() else 0
        if before == remote.size:
            return
        try:
            _once(url, remote, part, before, progress)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and before:  # the server does not know so much of this file
                part.unlink()
            elif error.code < 500 or attempt == TRIES - 1:
                raise
        except (
            urllib.error.URLError,
            _CutError,
            http.client.HTTPException,
            TimeoutError,
            OSError,
        ) as e:
            if isinstance(e, OSError) and not _of_network(e):
                raise  # the disk's
            after = part.stat().st_size if part.exists() else 0
            if attempt == TRIES - 1 or (_unreachable(e) and after == before):
                raise e if not isinstance(e, OSError) else urllib.error.URLError(e) from e
        time.sleep(pause)
        pause *= 2
    raise _CutError(f"{TRIES} tries were not enough")


def _once(url: str, remote: Remote, part: Path, start: int, progress: Progress) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "chiaroscuro"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    with urllib.request.build_opener(_SafeRedirects).open(request, timeout=TIMEOUT) as answer:
        resumed = answer.status == 206 and _begins(answer.headers) == start
        if not resumed:
            start = 0  # the server sends the whole
        done = start
        with part.open("ab" if resumed else "wb") as file:
            while chunk := answer.read(CHUNK):
                done += len(chunk)
                if done > remote.size:
                    raise InputError(f"`{url}` needs {remote.size} bytes and sends more")
                file.write(chunk)
                progress(remote.file, done, remote.size)
            file.flush()
            os.fsync(file.fileno())
    if done < remote.size:
        raise _CutError(f"the connection ended after {done} of {remote.size} bytes")


def _require_https(url: str) -> None:
    """Refuse an address that others on the way could read or change; this machine's is safe."""
    parts = urllib.parse.urlsplit(url)
    need(
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _OWN),
        lambda: f"`{url}` needs to begin with `https://`; it was not asked",
    )


_OWN = ("127.0.0.1", "::1", "localhost")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a server that names another address only where that is safe as well."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, url: str
    ) -> Any:
        _require_https(url)
        before, after = (urllib.parse.urlsplit(one).hostname for one in (req.full_url, url))
        need(
            before in _OWN or after not in _OWN,
            lambda: f"`{req.full_url}` leads to this machine, `{url}`; it was not asked",
        )
        return super().redirect_request(req, fp, code, msg, headers, url)


def _begins(headers: email.message.Message) -> int:
    match = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
    return int(match.group(1)) if match else -1


def _digest(path: Path, remote: Remote) -> str:
    kind = remote.digest.partition(":")[0]
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def _of_network(error: OSError) -> bool:
    return isinstance(error, urllib.error.URLError | ConnectionError | TimeoutError | ssl.SSLError)


def _unreachable(error: Exception) -> bool:
    """There is no such host, or nobody listens: trying again at once will not help."""
    return isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        inner = error.reason
        while isinstance(inner, urllib.error.URLError):
            inner = inner.reason
        return f"no connection ({getattr(inner, 'strerror', None) or inner})"
    return " ".join(str(error).split()) or type(error).__name__


def _line(out: IO[str]) -> Progress:
    """One line that rewrites itself on a terminal; without one, a line at each tenth."""
    seen: dict[str, int] = {}

    def show(name: str, done: int, total: int) -> None:
        percent = 100 * done // max(total, 1)
        step = percent if out.isatty() else percent // 10
        if seen.get(name) == step:
            return
        seen[name] = step
        text = f"{name}  {percent:3d} %  {done / 1e6:.1f} of {total / 1e6:.1f} MB"
        if out.isatty():
            out.write(f"\r{text}" + "\n" * (done == total))
        else:
            out.write(f"{text}\n")
        out.flush()

    return show


# ---- archives ----


def unpack(archive: str | Path, folder: str | Path) -> None:
    """Unpack a tar or zip whose files lie in one top folder, as `folder`, whole or not at all.

    Only folders and regular files are taken; a member that is a link or a device, or whose name is
    absolute or leads out of the top folder, refuses the whole archive.
    """
    archive, folder = Path(archive), Path(folder)
    open_regular(archive).close()  # a pipe would wait for ever
    need(not folder.exists(), lambda: f"`{folder}` is already there.")
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    total = 0
    try:
        for name, file in _members(archive):
            target = work / _safe(archive, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                for chunk in _chunks(archive, file):
                    total += len(chunk)
                    need(
                        total <= MAX_UNPACKED,
                        lambda: f"`{archive}` unpacks to more than {MAX_UNPACKED} bytes.",
                    )
                    out.write(chunk)
        inside = [entry for entry in work.iterdir() if entry.is_dir()]
        need(
            len(inside) == 1,
            lambda: f"`{archive}` needs one top folder; it has {len(inside)}.",
        )
        inside[0].chmod(0o755)
        os.replace(inside[0], folder)
    except FileExistsError as error:
        raise InputError(f"`{archive}` has a member twice: {error.filename}.") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, OSError),
    *(ValueError, LookupError, RuntimeError, NotImplementedError, OverflowError, struct.error),
)
"""What the readers of archives raise over damaged ones."""

T = TypeVar("T")


def _tried(archive: Path, read: Callable[[], T]) -> T:
    """Return what a reader of archives gives, or say in a sentence how it is damaged."""
    try:
        return read()
    except ChiaroError:
        raise
    except _BROKEN as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(f"`{archive}` is a damaged archive: {reason}") from error


def _chunks(archive: Path, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the contents of a member, a piece at a time."""
    while chunk := _tried(archive, lambda: file.read(CHUNK)):
        yield chunk


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the regular files by name; what is neither a file nor a folder refuses the archive."""
    if _tried(archive, lambda: zipfile.is_zipfile(archive)):
        with archive.open("rb") as opened:
            zipped = _tried(archive, lambda: zipfile.ZipFile(opened))
            _tried(archive, lambda: all_listed(archive.name, opened, zipped))
            for info in zipped.infolist():
                if info.filename.endswith("/"):  # `is_dir` fails on a name that is empty
                    _safe(archive, info.filename)
                    continue
                mode = info.external_attr >> 16
                regular = stat.S_IFMT(mode) in (0, stat.S_IFREG)
                need(regular, lambda info=info: _odd(archive, info.filename))
                with _tried(archive, lambda info=info: zipped.open(info)) as file:
                    yield info.filename, file
        return
    with _tried(archive, lambda: tarfile.open(archive, "r:*", tarinfo=StrictHeader)) as tar:
        while (member := _tried(archive, tar.next)) is not None:
            if member.isdir():
                _safe(archive, member.name)
                continue
            need(member.isreg(), lambda member=member: _odd(archive, member.name))
            inside: Any = tar.extractfile(member)
            yield member.name, inside


def _odd(archive: Path, name: str) -> str:
    return f"`{archive}` is refused: its member `{name}` is neither a file nor a folder."


def _safe(archive: Path, name: str) -> Path:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    clean = not name.startswith("/") and "\\" not in name and "\0" not in name
    need(
        clean and parts != [] and ".." not in parts and ":" not in parts[0],
        lambda: f"`{archive}` is refused: its member `{name}` leads out of the folder.",
    )
    return Path(*parts)
