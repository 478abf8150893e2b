"""The list of runs: one bad run never hides the others, and an idle folder costs little."""

import json
import os
import socket
import sys
import time

import pytest

from chiaroscuro.artifacts import Run
from chiaroscuro.report import listing as module
from chiaroscuro.report.listing import Listing
from chiaroscuro.report.tail import Tails
from report.conftest import DIAGNOSIS, make_run


def deep(n):
    return "[" * n + "]" * n


def history(text):
    return lambda folder: (folder / "history.jsonl").write_text(text)


def replaced(name, text):
    return lambda folder: (folder / name).write_text(text)


def fifo(name):
    def make(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return make


BAD = {
    "epoch is a word": (history('{"step": 1, "epoch": "x", "mean_loss": 1}\n'), "`epoch`"),
    "epoch is a list": (history('{"step": 1, "epoch": [1], "mean_loss": 1}\n'), "`epoch`"),
    "loss is a word": (history('{"step": 1, "epoch": 1, "mean_loss": {}}\n'), "`mean_loss`"),
    "findings is a number": (replaced("diagnosis.json", '{"format": 1, "findings": 5}'), "list"),
    "a link in a circle": (
        lambda folder: (folder / "evaluation.json").symlink_to("evaluation.json"),
        None,
    ),
    "diagnosis is a list": (replaced("diagnosis.json", "[]"), "object"),
    "deep settings": (replaced("settings.toml", f"a = {deep(5000)}"), "settings.toml"),
    "long integer in settings": (replaced("settings.toml", "a = " + "9" * 5000), "settings.toml"),
    "settings are not text": (
        lambda folder: (folder / "settings.toml").write_bytes(b"\xff\xfe"),
        "settings.toml",
    ),
    "deep diagnosis": (replaced("diagnosis.json", deep(50_000)), "diagnosis.json"),
    "deep findings": (
        replaced("diagnosis.json", f'{{"format": 1, "findings": [{deep(200)}]}}'),
        "finding",
    ),
    "long integer in diagnosis": (replaced("diagnosis.json", "9" * 5000), "diagnosis.json"),
    "deep history": (history(deep(50_000) + "\n"), "line 1"),
    "long integer in history": (history('{"epoch": ' + "9" * 5000 + "}\n"), "line 1"),
    "large integer in history": (history('{"epoch": ' + "9" * 400 + "}\n"), "`epoch`"),
    "large integer in evaluation": (
        replaced("evaluation.json", '{"results": {"encoder": {"knn_20": ' + "9" * 400 + "}}}"),
        "evaluation.json",
    ),
    "deep evaluation": (replaced("evaluation.json", deep(50_000)), "evaluation.json"),
    "history is a pipe": (fifo("history.jsonl"), "regular file"),
    "environment is a pipe": (fifo("environment.json"), None),
    "history is a folder": (lambda folder: (folder / "history.jsonl").mkdir(), "regular file"),
    "epochs is a word": (replaced("settings.toml", 'format = 1\nepochs = "x"'), "`epochs`"),
    "network is a word": (replaced("settings.toml", 'format = 1\nnetwork = "x"'), None),
}


@pytest.mark.parametrize("how", BAD)
def test_a_bad_run_is_listed_with_its_reason_beside_good_ones(tmp_path, how):
    make_run(tmp_path / "good", n=12, epochs=1)
    bad = Run.create(tmp_path / "bad", {"seed": 0, "epochs": 3})
    change, reason = BAD[how]
    change(bad.folder)
    rows = {row["name"]: row for row in Listing(tmp_path).rows()}
    assert set(rows) == {"good", "bad"}
    assert rows["good"]["problem"] is None
    assert (rows["bad"]["problem"] or "").count("Traceback") == 0
    if reason is None:
        assert rows["bad"]["problem"] is None
    else:
        assert reason in rows["bad"]["problem"]
    json.dumps(list(rows.values()), allow_nan=False)


def test_a_name_that_is_not_utf8(tmp_path):
    if sys.platform != "linux":
        pytest.skip("file names are bytes on Linux alone")
    Run.create(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"), {"seed": 0})
    (row,) = Listing(tmp_path).rows()
    assert row["name"] == "caf\ufffd"


def test_a_run_that_goes_while_it_is_read_is_left_out(tmp_path, monkeypatch):
    make_run(tmp_path / "good", n=12, epochs=1)
    gone = make_run(tmp_path / "gone", n=12, epochs=1)
    read = Tails.history

    def late(tails, run):
        if run == gone.folder:
            import shutil

            shutil.rmtree(gone.folder)
        return read(tails, run)

    monkeypatch.setattr(Tails, "history", late)
    seen = Listing(tmp_path)
    assert [row["name"] for row in seen.rows()] == ["good"]
    assert [row["name"] for row in seen.rows()] == ["good"]


def test_a_folder_that_may_not_be_read_is_passed_over(tmp_path, monkeypatch):
    make_run(tmp_path / "good", n=12, epochs=1)
    make_run(tmp_path / "half", n=12, epochs=1)
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path):
        if str(path).endswith(("closed", "half/embeddings")):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(module.os, "scandir", refuse)
    rows = {row["name"]: row["problem"] for row in Listing(tmp_path).rows()}
    assert rows == {"good": None, "half": "PermissionError: [Errno 13] Permission denied"}


# ---- what a look costs ----


def test_nothing_is_read_again_that_has_not_changed(tmp_path, monkeypatch):
    runs = [make_run(tmp_path / f"r{k}", n=12, epochs=1) for k in range(3)]
    read, asked = Tails.history, []

    def counted(tails, run):
        asked.append(run.name)
        return read(tails, run)

    monkeypatch.setattr(Tails, "history", counted)
    seen = Listing(tmp_path)
    first = seen.look()
    assert sorted(asked) == ["r0", "r1", "r2"]
    second = seen.look()
    assert len(asked) == 3
    assert second.version == first.version
    assert all(second.rows[key] is first.rows[key] for key in first.rows)
    runs[1].append({"step": 11, "epoch": 2, "mean_loss": 1.0})
    third = seen.look()
    assert asked[3:] == ["r1"]
    assert third.version > second.version
    changed = [row["name"] for key, row in third.rows.items() if row is not first.rows[key]]
    assert changed == ["r1"]


def test_a_run_that_comes_or_goes_is_a_change(tmp_path):
    import shutil

    make_run(tmp_path / "one", n=12, epochs=1)
    seen = Listing(tmp_path)
    first = seen.look().version
    make_run(tmp_path / "two", n=12, epochs=1)
    second = seen.look()
    assert (len(second.rows), second.version > first) == (2, True)
    shutil.rmtree(tmp_path / "two")
    third = seen.look()
    assert (len(third.rows), third.version > second.version) == (1, True)


def test_a_link_that_is_made_later_takes_the_run_from_the_list(tmp_path):
    inside = tmp_path / "runs"
    one = make_run(inside / "one", n=12, epochs=1)
    make_run(inside / "two", n=12, epochs=1)
    seen = Listing(inside)
    assert len(seen.look().rows) == 2
    (one.folder / "labs").mkdir()
    assert len(seen.look().rows) == 2
    (one.folder / "labs" / "x.json").symlink_to("/etc/passwd")
    assert [row["name"] for row in seen.look().rows.values()] == ["two"]


# ---- states ----


def aged(run, seconds):
    """Let every file of a run be so old."""
    then = time.time() - seconds
    for path in run.folder.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def state(folder):
    (row,) = Listing(folder).rows()
    return row["state"]


def test_a_slow_first_epoch_is_not_called_stopped(tmp_path):
    run = Run.create(tmp_path / "slow", {"seed": 0, "epochs": 90})
    assert state(tmp_path) == "starting"
    aged(run, 1800)
    assert state(tmp_path) == "starting"
    aged(run, 3 * 86400)
    assert state(tmp_path) == "stopped"


@pytest.mark.parametrize(("idle", "expected"), [(900, "training"), (3000, "stopped")])
def test_the_wait_follows_the_pace_of_the_epochs(tmp_path, idle, expected):
    run = Run.create(tmp_path / "slow", {"seed": 0, "epochs": 90})
    for epoch in (1, 2):
        run.append({"step": epoch, "epoch": epoch, "mean_loss": 1.0, "seconds": 600.0 * epoch})
    aged(run, idle)
    assert state(tmp_path) == expected


@pytest.mark.parametrize(
    ("idle", "holder", "expected"),
    [
        (9e9, {"pid": os.getpid()}, "training"),
        (1, {"pid": 2**22 + 1}, "stopped"),  # beyond the largest pid
        (1, {"pid": os.getpid(), "host": "elsewhere"}, "training"),
        (1000, {"pid": os.getpid(), "host": "elsewhere"}, "stopped"),
        (1, {"pid": "x"}, "training"),
        (1, {"pid": -1}, "training"),
        (1, [], "training"),
    ],
)
def test_a_lock_that_names_its_writer_decides(tmp_path, idle, holder, expected):
    run = Run.create(tmp_path / "run", {"seed": 0, "epochs": 9})
    run.append({"step": 1, "epoch": 1, "mean_loss": 1.0})
    aged(run, min(idle, 1e8))
    if isinstance(holder, dict):
        holder = {"host": socket.gethostname(), **holder}
    (run.folder / "writer.lock").write_text(json.dumps(holder))
    assert state(tmp_path) == expected


def test_finished_and_stopped(tmp_path):
    run = make_run(tmp_path / "run", n=12, epochs=1)
    run.write_diagnosis(DIAGNOSIS)
    assert state(tmp_path) == "finished"
    half = Run.create(tmp_path / "half", {"seed": 0, "epochs": 3})
    half.append({"step": 1, "epoch": 1, "mean_loss": 1.0})
    aged(half, 1000)
    rows = {row["name"]: row["state"] for row in Listing(tmp_path).rows()}
    assert rows == {"run": "finished", "half": "stopped"}
