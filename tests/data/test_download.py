"""Downloads from a server on this machine that cuts, lies, and forgets; and hostile archives."""

import hashlib
import io
import os
import socket
import struct
import tarfile
import threading
import urllib.request
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from chiaroscuro.data import OFFICIAL, download, get, read_cifar
from chiaroscuro.data.download import Official, Remote, unpack
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.models.foreign import load_foreign


class Server:
    """Serves `files`; `cuts` are how many bytes each next answer gives before the line dies."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.status: list[int] = []
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.lstrip("/")
        wanted = request.headers.get("Range")
        self.asked.append((name, wanted))
        if self.status and (code := self.status.pop(0)) != 200:
            request.send_error(code)
            return
        if name not in self.files:
            request.send_error(404)
            return
        content = self.files[name]
        start = int(wanted[6:-1]) if wanted and self.ranges else 0
        if start >= len(content):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        body = content[start:]
        request.wfile.write(body[: self.cuts.pop(0)] if self.cuts else body)

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Server()
    yield server
    server.close()


def archive(members: dict[str, bytes], top: str = "cifar-10-batches-bin") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def described(content: bytes, digest: str | None = None, file: str = "c.tar.gz") -> Official:
    digest = digest or "sha256:" + hashlib.sha256(content).hexdigest()
    remote = Remote(file, len(content), digest)
    return Official(
        ("https://nowhere.invalid/",), (remote,), "cifar-10-batches-bin", "a page", True
    )


@pytest.fixture
def cifar() -> bytes:
    rng = np.random.default_rng(0)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    records = {n: rng.integers(0, 10, 3073 * 20, np.uint8).tobytes() for n in names}
    return archive(records)


def fetch(server, root, content, progress=lambda *_: None, **changes):
    server.files.setdefault("c.tar.gz", content)
    return get("cifar10", root, progress, server.url, described(content, **changes))


def test_a_fetched_set_can_be_read(server, tmp_path, cifar):
    seen = []
    folder = fetch(server, tmp_path, cifar, lambda *step: seen.append(step))
    assert folder == tmp_path / "cifar-10-batches-bin"
    assert len(read_cifar(folder)) == 120
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-bin"]
    assert seen[-1] == ("c.tar.gz", len(cifar), len(cifar))


def test_nothing_is_fetched_twice(server, tmp_path, cifar):
    fetch(server, tmp_path, cifar)
    asked = len(server.asked)
    fetch(server, tmp_path, cifar)
    assert len(server.asked) == asked


def test_a_cut_line_is_resumed(server, tmp_path, cifar):
    server.cuts = [1000, 5000]
    fetch(server, tmp_path, cifar)
    assert [asked for _, asked in server.asked] == [None, "bytes=1000-", "bytes=6000-"]


def test_a_part_of_another_day_is_resumed(server, tmp_path, cifar):
    (tmp_path / "c.tar.gz.part").write_bytes(cifar[:7777])
    fetch(server, tmp_path, cifar)
    assert server.asked == [("c.tar.gz", "bytes=7777-")]


def test_a_server_without_ranges_starts_again(server, tmp_path, cifar):
    server.ranges, server.cuts = False, [1000]
    assert len(read_cifar(fetch(server, tmp_path, cifar))) == 120


def test_a_part_of_another_file_is_dropped(server, tmp_path, cifar):
    (tmp_path / "c.tar.gz.part").write_bytes(b"x" * 500)
    assert len(read_cifar(fetch(server, tmp_path, cifar))) == 120
    assert [asked for _, asked in server.asked] == ["bytes=500-", None]


def test_a_part_that_is_too_long_is_dropped(server, tmp_path, cifar):
    (tmp_path / "c.tar.gz.part").write_bytes(cifar + b"more")
    assert len(read_cifar(fetch(server, tmp_path, cifar))) == 120


def test_a_line_that_stays_dead_keeps_what_came(server, tmp_path, cifar):
    server.cuts = [100] * 9
    with pytest.raises(
        ChiaroError, match=rf"500 of {len(cifar)} bytes are kept and will be resumed"
    ):
        fetch(server, tmp_path, cifar)
    assert (tmp_path / "c.tar.gz.part").read_bytes() == cifar[:500]
    server.cuts = []
    assert len(read_cifar(fetch(server, tmp_path, cifar))) == 120


def test_a_wrong_checksum_leaves_nothing(server, tmp_path, cifar):
    digest = f"sha256:{hashlib.sha256(b'other').hexdigest()}"
    with pytest.raises(
        ChiaroError, match=rf"needs the digest {digest} \(a page\); what came, \d+ bytes"
    ):
        fetch(server, tmp_path, cifar, digest=digest)
    assert list(tmp_path.iterdir()) == []


def test_more_than_was_promised_is_refused(server, tmp_path, cifar):
    server.files["c.tar.gz"] = cifar + b"tail"
    with pytest.raises(ChiaroError, match=rf"needs {len(cifar)} bytes and sends more"):
        fetch(server, tmp_path, cifar)


def test_less_than_was_promised_is_a_cut(server, tmp_path, cifar):
    server.files["c.tar.gz"] = cifar[:-10]
    with pytest.raises(ChiaroError, match=r"could not fetch"):
        fetch(server, tmp_path, cifar)
    assert not (tmp_path / "cifar-10-batches-bin").exists()


@pytest.mark.parametrize("code", [404, 403])
def test_a_refusal_is_said(server, tmp_path, cifar, code):
    server.status = [code]
    with pytest.raises(ChiaroError, match=f"the server answers {code}"):
        fetch(server, tmp_path, cifar)
    assert len(server.asked) == 1


def test_a_server_that_stumbles_is_asked_again(server, tmp_path, cifar):
    server.status = [503, 500]
    assert len(read_cifar(fetch(server, tmp_path, cifar))) == 120
    assert len(server.asked) == 3


def test_offline_is_a_sentence(tmp_path, cifar, monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 60.0)  # it must not wait
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    with pytest.raises(
        ChiaroError, match=r"no connection \(.*refused\).*fetch it elsewhere and put it in"
    ):
        get("cifar10", tmp_path, lambda *_: None, url, described(cifar))


def test_no_such_host_is_a_sentence(tmp_path, cifar, monkeypatch):
    def nobody(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ChiaroError, match=r"no connection \(Name or service not known\)"):
        get("cifar10", tmp_path, lambda *_: None, None, described(cifar))


def test_mirrors_are_tried_in_order(server, tmp_path):
    content = b"labels"
    remote = Remote("a.gz", len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
    server.files["second/a.gz"] = content
    urls = (f"{server.url}first/", f"{server.url}second/")
    folder = get(
        "mnist", tmp_path, lambda *_: None, None, Official(urls, (remote,), "m", "", False)
    )
    assert (folder / "a.gz").read_bytes() == content
    assert [name for name, _ in server.asked] == ["first/a.gz", "second/a.gz"]


def test_a_place_that_cannot_be_written(server, tmp_path, cifar):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ChiaroError, match="cannot write to"):
        fetch(server, tmp_path / "file" / "inside", cifar)


def test_progress_without_a_terminal_is_plain_lines(server, tmp_path, cifar, capsys):
    fetch(server, tmp_path, cifar, progress=None)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "100 %" in shown.err
    assert "\r" not in shown.err


def test_unknown_names_are_listed(tmp_path):
    with pytest.raises(InputError, match="these are: cifar10, cifar100, tiny_imagenet, mnist"):
        get("imagenet", tmp_path)


def test_the_official_files_are_described():
    for name, official in OFFICIAL.items():
        assert official.published, name
        for remote in official.files:
            kind, _, digest = remote.digest.partition(":")
            assert (kind, len(digest)) == ("sha256", 64)
            assert remote.size > 1000
        assert all(url.startswith("https://") and url.endswith("/") for url in official.urls)


def test_a_digest_other_than_sha256_is_refused(server, tmp_path, cifar):
    with pytest.raises(ChiaroError, match=r"`c.tar.gz` needs a sha256 .*it has `md5:00`"):
        fetch(server, tmp_path, cifar, digest="md5:00")
    assert server.asked == []


@pytest.mark.parametrize("url", ["http://example.org/", "ftp://example.org/", "file:///etc/"])
def test_addresses_without_https_are_not_asked(tmp_path, cifar, url, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("it was asked"))
    with pytest.raises(ChiaroError, match="needs to begin with `https://`; it was not asked"):
        get("cifar10", tmp_path, lambda *_: None, url, described(cifar))


def test_a_server_that_leads_away_from_https_is_not_followed():
    follow = download._SafeRedirects()
    asked = urllib.request.Request("https://example.org/a")
    for url in ("http://example.org/b", "file:///etc/passwd"):
        with pytest.raises(InputError, match="needs to begin with `https://`"):
            follow.redirect_request(asked, None, 302, "Found", {}, url)
    for url in ("http://127.0.0.1:8080/delete", "https://localhost/a", "http://[::1]/"):
        with pytest.raises(InputError, match="leads to this machine"):
            follow.redirect_request(asked, None, 302, "Found", {}, url)
    again = follow.redirect_request(asked, None, 302, "Found", {}, "https://example.org/b")
    assert again.full_url == "https://example.org/b"


# ---- archives ----


def tar_of(*members: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in members:
            member.size = 4 if member.isreg() else 0
            tar.addfile(member, io.BytesIO(b"evil"))
    return out.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def device() -> tarfile.TarInfo:
    info = tarfile.TarInfo("top/null")
    info.type = tarfile.CHRTYPE
    return info


HOSTILE = {
    "dots": [tarfile.TarInfo("top/../../evil")],
    "absolute": [tarfile.TarInfo("/tmp/evil")],
    "symlink": [link("top/a", "/etc"), tarfile.TarInfo("top/a/evil")],
    "hard link": [link("top/a", "/etc/passwd", tarfile.LNKTYPE)],
    "device": [device()],
    "backslash": [tarfile.TarInfo("top\\..\\evil")],
    "drive": [tarfile.TarInfo("C:/evil")],
    "twice": [tarfile.TarInfo("top/a"), tarfile.TarInfo("top/a")],
    "two tops": [tarfile.TarInfo("top/a"), tarfile.TarInfo("other/a")],
    "no top": [tarfile.TarInfo("a")],
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_archives_are_refused_whole(tmp_path, name):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "x.tar").write_bytes(tar_of(*HOSTILE[name]))
    with pytest.raises(InputError, match=r"x\.tar"):
        unpack(inside / "x.tar", inside / "top")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "b", "x.tar"]


def test_a_damaged_header_is_not_the_end_of_an_archive(tmp_path):
    block = bytearray(tar_of(*(tarfile.TarInfo(f"top/{i}") for i in range(3))))
    block[1024 + 5] ^= 1  # in the name of the second of three
    (tmp_path / "x.tar").write_bytes(block)
    with pytest.raises(InputError, match=r"damaged archive: the header at byte 1,024 is damaged"):
        unpack(tmp_path / "x.tar", tmp_path / "top")


@pytest.mark.parametrize("name", ["top/../../evil", "/evil", "top/ok/../../../evil"])
def test_hostile_zips_are_refused_whole(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.writestr("top/fine", "fine")
        zipped.writestr(zipfile.ZipInfo(name), "evil")
    with pytest.raises(InputError, match="leads out of the folder"):
        unpack(tmp_path / "x.zip", tmp_path / "top")
    assert [p.name for p in tmp_path.iterdir()] == ["x.zip"]


def test_a_zip_with_a_member_without_a_name_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.writestr("top/fine", "fine")
        zipped.writestr(zipfile.ZipInfo(""), "nameless")
    with pytest.raises(InputError, match="leads out of the folder"):
        unpack(tmp_path / "x.zip", tmp_path / "top")
    assert [p.name for p in tmp_path.iterdir()] == ["x.zip"]


def test_a_zip_of_several_disks_is_refused(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("top/fine", "fine")
    whole, locator = path.read_bytes(), struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 2)
    path.write_bytes(whole[:-22] + locator + whole[-22:])
    with pytest.raises(InputError, match=r"damaged archive: .* multiple disks"):
        unpack(path, tmp_path / "top")
    with pytest.raises(ChiaroError, match=r"cannot be read as weights: .* multiple disks"):
        load_foreign(path)


def test_a_link_in_a_zip_is_refused(tmp_path):
    info = zipfile.ZipInfo("top/link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        unpack(tmp_path / "x.zip", tmp_path / "top")


def test_a_bomb_stops_early(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "MAX_UNPACKED", 1 << 20)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("top/zeros", bytes(5 << 20))
    with pytest.raises(InputError, match="more than 1048576 bytes"):
        unpack(tmp_path / "x.zip", tmp_path / "top")
    assert [p.name for p in tmp_path.iterdir()] == ["x.zip"]


def test_a_zip_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.mkdir("top/")
        zipped.writestr("top/a/b.txt", "fine")
    unpack(tmp_path / "x.zip", tmp_path / "final")
    assert (tmp_path / "final" / "a" / "b.txt").read_text() == "fine"
    assert not os.access(tmp_path / "top", os.F_OK)


@pytest.mark.parametrize("keep", [0, 30, 300, -2000])
def test_damaged_archives_leave_nothing(tmp_path, cifar, keep):
    (tmp_path / "x.tar.gz").write_bytes(cifar[:keep])
    with pytest.raises(InputError, match=r"x\.tar\.gz"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "top")
    assert [p.name for p in tmp_path.iterdir()] == ["x.tar.gz"]
