"""The live server: who is answered, what can be read, and what arrives while training runs."""

import asyncio
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse

import pytest

from chiaroscuro.artifacts import Run
from chiaroscuro.cli import main
from chiaroscuro.report import server as module
from chiaroscuro.report.listing import Listing
from report.conftest import DIAGNOSIS, make_run

pytest.importorskip("starlette", reason="no server: `.[view]`")
SECRET = "the secret outside the folder"


class Served:
    """A server in its own process, and requests to it letter by letter."""

    def __init__(self, folder, before="pass"):
        self.folder = folder
        code = f"{before}; import sys; from chiaroscuro.cli import main; main(sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "view", str(folder)], stdout=subprocess.PIPE, text=True
        )
        self.address = self.process.stdout.readline().split()[1]
        parts = urllib.parse.urlsplit(self.address)
        self.port = parts.port
        self.token = urllib.parse.parse_qs(parts.query)["token"][0]

    def ask(self, target, headers=None, method="GET"):
        """Status, headers and body; `target` is sent as it is written."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        given = headers if headers is not None else [("Host", f"127.0.0.1:{self.port}")]
        for name, value in given:
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = (
            b"" if answer.getheader("content-type", "").startswith("text/event") else answer.read()
        )
        connection.close()
        return answer.status, dict(answer.getheaders()), body.decode()

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=10)

    def to(self, path, **query):
        words = [("token", self.token), *((k, v) for k, vs in query.items() for v in vs)]
        return f"{path}?{urllib.parse.urlencode(words)}"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    around = tmp_path_factory.mktemp("around")
    (around / "secret.txt").write_text(SECRET)
    (around / "runs").mkdir()
    make_run(around / "runs" / "one", n=60, epochs=2).write_diagnosis(DIAGNOSIS)
    make_run(around / "runs" / "deep" / "two", n=60, epochs=2, seed=1)
    outside = make_run(around / "outside", n=12, epochs=1)
    (around / "runs" / "link").symlink_to(outside.folder)
    leak = make_run(around / "runs" / "leak", n=12, epochs=1)
    (leak.folder / "history.jsonl").unlink()
    (leak.folder / "history.jsonl").symlink_to(around / "secret.txt")
    server = Served(around / "runs")
    yield server
    server.close()


def document(body):
    return json.loads(re.search(r'id="document">(.*?)</script>', body, re.DOTALL)[1])


def test_the_list_and_a_report(served):
    status, headers, body = served.ask(served.to("/"))
    assert status == 200
    rows = {row["name"]: row for row in document(body)["runs"]}
    assert set(rows) == {"one", "deep/two"}  # neither the link nor the run with a link inside
    assert rows["one"]["findings"] == 2
    assert (rows["one"]["online"], rows["one"]["accuracy"]) == (0.5, None)  # never one for another
    assert rows["one"]["state"] == "finished"
    changed = (served.folder / "one" / "history.jsonl").stat().st_mtime
    assert rows["one"]["changed"] == pytest.approx(changed, abs=0.1, rel=0)
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers
    status, _, body = served.ask(served.to("/report", run=[rows["one"]["id"]]))
    assert status == 200
    assert document(body)["runs"][0]["diagnosis"]["verdict"] == DIAGNOSIS["verdict"]
    assert "connect-src 'self'" in body
    both = [row["id"] for row in rows.values()]
    _, _, body = served.ask(served.to("/report", run=both))
    assert [run["name"] for run in document(body)["runs"]] == list(rows)


def forged(served):
    """Requests that must be refused: (target, headers)."""
    port, good = served.port, served.to("/")
    hosts = [
        "evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1",
        "localhost", f"127.0.0.1:{port + 1}", f"0.0.0.0:{port}", f"[::1]:{port}", f"127.1:{port}",
        f"127.0.0.1:{port}.evil.example", f"evil@127.0.0.1:{port}", f"LOCALHOST:{port}", "",
        f"2130706433:{port}",
    ]  # fmt: skip
    yield from ((good, [("Host", host)]) for host in hosts)
    yield good, []
    own = ("Host", f"127.0.0.1:{port}")
    yield good, [own, ("Host", "evil.example")]
    origins = [
        "http://evil.example", "null", "https://evil.example", f"https://127.0.0.1:{port}",
        f"http://127.0.0.1:{port + 1}", "http://localhost", f"http://127.0.0.1:{port}.evil.example",
        f"http://evil.example:{port}", "", "file://",
    ]  # fmt: skip
    yield from ((good, [own, ("Origin", origin)]) for origin in origins)
    yield good, [own, ("Origin", f"http://127.0.0.1:{port}"), ("Origin", "http://evil.example")]
    yield from ((good, [own, ("Sec-Fetch-Site", site)]) for site in ("cross-site", "same-site"))
    token = served.token
    tokens = [
        "/", "/?token=", f"/?token={token[:-1]}", f"/?token={token}x",
        f"/?token={token.swapcase()}",
        f"/?Token={token}", f"/?token={token}&token={token}", f"/?token=x&token={token}",
        f"/?token[]={token}", f"/?x=token={token}", "/?token=%00", f"/?token=%20{token}",
    ]  # fmt: skip
    yield from ((target, [own]) for target in tokens)
    yield "/", [own, ("Cookie", f"token={token}"), ("Authorization", f"Bearer {token}")]


def test_forged_requests_are_refused(served):
    cases = list(forged(served))
    assert len(cases) >= 30
    for target, headers in cases:
        status, _, body = served.ask(target, headers)
        assert status in (400, 403), (target, headers, status)
        assert "document" not in body
    for path in ("/report", "/events", "/nothing"):
        assert served.ask(path)[0] == 403


def test_what_is_allowed(served):
    own = [("Host", f"localhost:{served.port}"), ("Origin", f"http://localhost:{served.port}")]
    assert served.ask(served.to("/"), own)[0] == 200
    same = [("Host", f"127.0.0.1:{served.port}"), ("Sec-Fetch-Site", "same-origin")]
    assert served.ask(served.to("/"), same)[0] == 200
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert served.ask(served.to("/"), method=method)[0] == 405


def traversals():
    """Ways to write a path out of the folder, and to name a file in it."""
    dots = [
        "..",
        "%2e%2e",
        "%2E%2e",
        ".%2e",
        "%252e%252e",
        "..%00",
        "%c0%ae%c0%ae",
        "..;",
        "....",
        "%uff0e",
    ]
    slashes = ["/", "%2f", "%5c", "\\", "%252f", "//", "%c0%af", "/./"]
    targets = ["secret.txt", "etc/passwd", "one/settings.toml"]
    for dot, slash, target, depth in itertools.product(dots, slashes, targets, (1, 3)):
        yield (dot + slash) * depth + target.replace("/", slash)
    yield from (
        "/etc/passwd",
        "file:///etc/passwd",
        "one",
        "deep/two",
        "deep%2ftwo",
        "*",
        ".",
        "%00",
    )


def test_no_path_leads_anywhere(served):
    paths = list(traversals())
    assert len(paths) >= 480
    asked = 0
    for at, path in enumerate(paths):
        for target in (
            (
                f"/{path}?token={served.token}",
                f"/report?token={served.token}&run={path}",
            )[at % 2 :: 2]
            if at % 5
            else (
                f"/{path}?token={served.token}",
                f"/report?token={served.token}&run={path}",
                f"/report/{path}?token={served.token}",
            )
        ):
            status, _, body = served.ask(target.replace("\\", "%5C") if at % 3 else target)
            asked += 1
            assert status in (400, 404), (target, status)
            assert SECRET not in body
            assert "root:" not in body
            assert "objective" not in body
    assert asked >= 500


def test_a_websocket_is_not_answered(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as raw:
        lines = [
            f"GET {served.to('/events')} HTTP/1.1", f"Host: 127.0.0.1:{served.port}",
            "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
        ]  # fmt: skip
        raw.sendall("\r\n".join(lines).encode())
        assert b" 101 " not in raw.recv(200)


def test_it_binds_loopback_alone(served):
    with socket.socket() as other:
        other.settimeout(2)
        address = next(
            (
                found[4][0]
                for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
                if not found[4][0].startswith("127.")
            ),
            None,
        )
        if address is not None:
            assert other.connect_ex((address, served.port)) != 0


def events(served, **query):
    """The events of a stream, one after another."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.request("GET", served.to("/events", **query))
    with contextlib.closing(connection), connection.getresponse() as answer:
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def test_a_bad_run_takes_down_neither_list_nor_server(tmp_path):
    make_run(tmp_path / "good", n=12, epochs=1)
    bad = Run.create(tmp_path / "bad", {"seed": 0})
    bad.append({"step": 1, "epoch": "x", "constructor": 1.0})
    (bad.folder / "diagnosis.json").write_text('{"format": 1, "findings": 5}')
    os.mkfifo(tmp_path / "good" / "embeddings" / "pipe.npz")
    (tmp_path / "good" / "labs").mkdir()
    os.mkfifo(tmp_path / "good" / "labs" / "pipe.json")
    Run.create(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"), {"seed": 0})
    server = Served(tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(server.close)
        status, _, body = server.ask(server.to("/"))
        rows = {row["name"]: row for row in document(body)["runs"]}
        assert (status, set(rows)) == (200, {"good", "bad", "caf\ufffd"})
        for name, wanted in (("good", 200), ("bad", 500), ("caf\ufffd", 200)):
            status, _, body = server.ask(server.to("/report", run=[rows[name]["id"]]))
            assert (name, status) == (name, wanted)
            assert "Traceback" not in body
        assert "list of findings" in server.ask(server.to("/report", run=[rows["bad"]["id"]]))[2]
        stream = stack.enter_context(contextlib.closing(events(server)))
        first = next(stream)
        assert {row["name"] for row in first["rows"]} == set(rows)
        shutil.rmtree(bad.folder)
        assert next(stream) == {"rows": [], "gone": [rows["bad"]["id"]]}
        (tmp_path / "good" / "settings.toml").write_text("a = " + "[" * 5000)
        (changed,) = next(stream)["rows"]
        assert (changed["name"], changed["state"]) == ("good", "unreadable")


def test_half_open_requests_are_closed(tmp_path):
    """Whoever sends no request, or never ends one, is let go; who watches is not."""
    make_run(tmp_path / "good", n=12, epochs=1)
    server = Served(tmp_path, "from chiaroscuro.report import server as s; s.PATIENCE = 0.5")
    with contextlib.ExitStack() as stack:
        stack.callback(server.close)
        stream = stack.enter_context(contextlib.closing(events(server)))
        next(stream)
        halves = [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nA: "]
        raws = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in halves]
        for raw, half in zip(raws, halves, strict=True):
            raw.sendall(half)
        for raw in raws:
            with contextlib.suppress(ConnectionResetError):
                assert raw.recv(100) == b""
            raw.close()
        make_run(tmp_path / "later", n=12, epochs=1)
        seen = []
        while "later" not in seen:
            seen += [row["name"] for row in next(stream)["rows"]]
        assert server.ask(server.to("/"))[0] == 200


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["view", "/no/such/folder"], "There is no folder `/no/such/folder`"),
        (["view", ".", "--port", "70000"], "0 to 65535; received 70000"),
    ],
)
def test_sentences(words, sentence, capsys):
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


# ---- in a browser ----


def test_filters_and_sorting(served, opened):
    one = opened(served.address)
    names = lambda: [r.get_attribute("data-run") for r in one.page.locator("tbody tr").all()]
    assert set(names()) == {"one", "deep/two"}
    one.page.get_by_label("Filter").fill("deep infonce")
    assert names() == ["deep/two"]
    one.page.get_by_label("Filter").fill("nothing at all")
    assert names() == []
    assert "No run matches" in one.page.locator(".hint").inner_text()
    one.page.get_by_label("Filter").fill("")
    one.page.get_by_role("button", name="run", exact=True).click()
    assert names() == ["one", "deep/two"]
    one.page.get_by_role("button", name="run ↓").click()
    assert names() == ["deep/two", "one"]
    one.page.get_by_label("State").select_option("training")
    assert names() == []
    one.page.get_by_label("State").select_option("finished")
    one.page.get_by_label("Pick one").check()
    one.page.get_by_label("Pick deep/two").check()
    one.page.get_by_role("link", name="Compare").click()
    one.page.wait_for_selector("#compare")
    assert one.page.locator(".side .stage").count() == 2
    assert one.errors == []
    hosts = {urllib.parse.urlsplit(url).netloc for url in one.requests if url.startswith("http")}
    assert hosts == {f"127.0.0.1:{served.port}"}


def test_the_list_has_no_serious_barrier(served, opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: `.[test]`")
    one = opened(served.address, bypass_csp=True)
    found = axe.Axe().run(one.page).response["violations"]
    assert [f["id"] for f in found if f["impact"] in ("serious", "critical")] == []


TRAINING = """
import os, sys, time
from chiaroscuro.engine import read_settings, train
from chiaroscuro.engine.snapshots import snapshots
small = ["network.encoder='ResNet(9, 0.125, stem=\\"strided\\")'", "epochs=3", "saving.record=1"]
small += ["data.source=digits(size=16, renderings=(1, 1), test=0.5)", "batch=64"]
def wait(moment):  # the second and the last epoch begin when somebody has looked
    while moment.epoch < 2 and not os.path.exists(sys.argv[2] + str(moment.epoch)):
        time.sleep(0.05)
train(read_settings("digits", small), sys.argv[1], [snapshots(rows=60, every=1), wait])
"""


def test_curves_grow_while_a_real_training_runs(opened, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "runs").mkdir()
    server = Served(tmp_path / "runs")
    run, looked = tmp_path / "runs" / "new", tmp_path / "looked"
    training = subprocess.Popen([sys.executable, "-c", TRAINING, str(run), str(looked)])
    try:
        one = opened(server.address)
        row = one.page.locator('tr[data-run="new"]')
        row.wait_for(timeout=120_000)  # it appears by itself
        wait = lambda code, arg=None: one.page.wait_for_function(code, arg=arg, timeout=180_000)
        wait("() => /\\d/.test(document.querySelector('tr[data-run=new] .loss').textContent)")
        first = row.locator(".loss").inner_text()
        looked.with_name("looked0").touch()
        wait("(was) => document.querySelector('tr[data-run=new] .loss').textContent !== was", first)
        two = opened(server.address.split("/?")[0] + row.locator("a").get_attribute("href"))
        steps = "() => chiaroscuro.content.runs[0].training.steps.step?.length ?? 0"
        seen = two.page.evaluate(steps)
        looked.with_name("looked1").touch()
        two.page.wait_for_function(f"(n) => ({steps[6:]}) > n", arg=seen, timeout=180_000)
        drawn = two.page.locator("#training svg title").first.text_content()
        assert drawn.startswith("Loss, nats against step")
        assert training.wait(240) == 0
        wait("() => document.querySelector('tr[data-run=new] .state').textContent === 'finished'")
        assert len(Run.open(tmp_path / "runs" / "new").history().records) == 45
        assert one.errors == two.errors == []
    finally:
        training.kill()
        training.wait()
        server.close()


def test_a_stream_without_news_says_that_it_is_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.01)
    monkeypatch.setattr(module, "BEAT", 0.0)
    run = Run.create(tmp_path / "run", {"seed": 0})
    listing = Listing(tmp_path)

    class Asked:
        async def is_disconnected(self):
            return False

    async def first(news, n):
        return [await anext(news) for _ in range(n)]

    found = {"a": run.folder}
    watch = lambda: module._Watch(listing)
    # in a thread of their own: a browser of other tests keeps a loop running in this one
    with concurrent.futures.ThreadPoolExecutor() as pool:
        run_in = lambda news: pool.submit(lambda: asyncio.run(first(news, 3))).result()
        listed = run_in(module._list_news(Asked(), watch()))
        followed = run_in(module._run_news(Asked(), watch(), found))
    for said in (listed, followed):
        assert said[0].startswith("data: ")
        assert said[1:] == [": alive\n\n"] * 2
