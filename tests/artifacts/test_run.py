"""Run folders, their history, and the TOML they are written in."""

import json
import math
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chiaroscuro
from chiaroscuro.artifacts import Run, environment, to_toml
from chiaroscuro.artifacts.toml import from_toml, read_toml, toml_value
from chiaroscuro.errors import ChiaroError, InputError

SETTINGS = {
    "seed": 0,
    "name": 'say "hi"\n\\',
    "lr": 5e-3,
    "big": 1e30,
    "flags": [True, False],
    "nested": {"a": {"b": {"c": [1.0, 2.5]}}, "empty": {}, "odd key": {"x.y": "ä"}},
    "tables": [{"name": "one", "n": 1}, {"name": "two"}],
}


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", SETTINGS)


# ---- making and finding ----


def test_a_run_holds_what_it_was_given(tmp_path):
    run = Run.create(tmp_path / "a" / "b", SETTINGS, {"torch_threads": 2})
    again = Run.open(tmp_path / "a" / "b")
    assert again == run
    assert again.settings() == SETTINGS
    assert again.environment()["torch_threads"] == 2
    assert again.environment()["chiaroscuro"] == chiaroscuro.__version__
    assert again.checkpoints.is_dir()
    assert again.diagnosis() is None
    assert tomllib.loads((run.folder / "settings.toml").read_text())["format"] == 1
    assert json.loads((run.folder / "environment.json").read_text())["format"] == 1


def test_the_environment_names_neither_user_nor_host():
    text = json.dumps({k: v for k, v in environment().items() if k not in ("command", "variables")})
    assert str(Path.home()) not in text
    assert os.uname().nodename not in text or len(os.uname().nodename) < 4


def test_a_folder_with_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"has 1 other entries, the first is `thesis.tex`"):
        Run.create(tmp_path, {})
    with pytest.raises(InputError, match=r"not a run: it has no `settings.toml`"):
        Run.open(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        Run.open(tmp_path / "nowhere")
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_run_is_not_overwritten(run):
    with pytest.raises(InputError, match="holds a run already"):
        Run.create(run.folder, {})
    assert run.settings() == SETTINGS


def test_what_an_unfinished_create_left_is_taken_over(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "environment.json").write_text("{")
    (tmp_path / ".settings.toml.1-ab.tmp").write_text("see")
    assert Run.create(tmp_path, {"a": 1}).settings() == {"a": 1}


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(ChiaroError, match=r"cannot be.*Not a directory"):
        Run.create(tmp_path / "file" / "run", {})
    with pytest.raises(ChiaroError, match=r"cannot be a run folder: Not a directory"):
        Run.create(tmp_path / "file", {})

    def denied(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(ChiaroError, match=r"Permission denied \(errno 13\). You may not write"):
        Run.create(tmp_path / "new", {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path):
    (tmp_path / "locked").mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(ChiaroError, match="You may not write there"):
        Run.create(tmp_path / "locked" / "run", {})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"a": {"b": None}}, r"None.*`a.b`.*Leave the key out"),
        ({"a": object}, "type"),
        ({"a": {1: 2}}, "string keys; received `1` in `a`"),
        ({"format": 3}, "not a setting"),
        ({"a": "\ud800"}, "surrogate"),
    ],
)
def test_settings_without_a_form_are_refused_before_anything_is_made(tmp_path, settings, words):
    with pytest.raises(InputError, match=words):
        Run.create(tmp_path / "run", settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("format = 2", "format 2; this version reads 1 to 1.*newer"),
        ("seed = 0", "format None"),
        ("format = ", "not TOML"),
    ],
)
def test_other_settings_files_are_refused(run, text, words):
    (run.folder / "settings.toml").write_text(text)
    with pytest.raises(InputError, match=words):
        Run.open(run.folder)


# ---- history ----


def test_records_come_back_in_order(run):
    records = [{"step": i, "loss": x} for i, x in enumerate([0.1, math.inf, -math.inf, 1e-300])]
    for record in records:
        run.append(record, durable=False)
    run.append({"step": 4, "loss": math.nan, "text": "a\nb", "numpy": np.float32(0.5)})
    found = run.history()
    assert found.problems == []
    assert found.records[:4] == records
    assert math.isnan(found.records[4]["loss"])
    assert found.records[4]["numpy"] == 0.5
    for line in (run.folder / "history.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_torn_last_line_is_left_out_said_and_removed(run):
    for step in range(3):
        run.append({"step": step, "pad": "x" * 5000})
    path = run.folder / "history.jsonl"
    whole = path.read_bytes()
    for cut in (1, 100, 4999, 5010):
        path.write_bytes(whole[:-cut])
        found = run.history()
        assert [r["step"] for r in found.records] == [0, 1]
        (problem,) = found.problems
        assert "torn by a crash" in problem
        assert "2 records are whole" in problem
    run.append({"step": 7})
    assert [r["step"] for r in run.history().records] == [0, 1, 7]
    assert run.history().problems == []


def test_a_first_line_that_is_torn(run):
    (run.folder / "history.jsonl").write_bytes(b'{"step"')
    assert run.history().records == []
    run.append({"step": 0})
    assert run.history().records == [{"step": 0}]


def test_a_line_that_is_no_record_is_named(run):
    (run.folder / "history.jsonl").write_bytes(b'{"step": 0}\n[1]\nxx\n\xff\n{"step": 1}\n')
    found = run.history()
    assert [r["step"] for r in found.records] == [0, 1]
    assert [f"line {k} is left out" in p for k, p in zip((2, 3, 4), found.problems, strict=True)]


def test_rewinding_drops_what_came_after(run):
    for step in range(5):
        run.append({"step": step})
    assert run.rewind(lambda record: record["step"] <= 2) == 2
    assert [r["step"] for r in run.history().records] == [0, 1, 2]
    assert run.rewind(lambda record: True) == 0


def test_what_json_lacks_is_refused(run):
    for record, words in (
        ({"a": {1: 2}}, "string keys"),
        ({"a": [object()]}, r"`object`, at `.a\[0"),
    ):
        with pytest.raises(InputError, match=words):
            run.append(record)
    assert run.history().records == []


def test_disk_full_while_appending_keeps_every_record(run):
    code = """
import resource, sys
from chiaroscuro.artifacts import Run
from chiaroscuro.errors import ChiaroError
run = Run.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    for step in range(100):
        run.append({"step": step, "pad": "x" * 80})
except ChiaroError as error:
    print(step, error)
"""
    src = str(Path(chiaroscuro.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, run.folder],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": src},
        timeout=60,
    )
    assert done.stderr == ""
    step, _, sentence = done.stdout.partition(" ")
    assert "File too large (errno 27)" in sentence
    assert "The records before it are intact." in sentence
    found = run.history()
    assert [r["step"] for r in found.records] == list(range(int(step)))
    assert found.problems == []


# ---- the rest ----


def test_a_diagnosis_comes_back_with_its_format(run):
    run.write_diagnosis({"measures": {"rank": 3.5, "gap": math.nan}, "findings": []})
    assert run.diagnosis()["measures"]["rank"] == 3.5
    assert math.isnan(run.diagnosis()["measures"]["gap"])
    path = run.folder / "diagnosis.json"
    assert json.loads(path.read_text())["format"] == 1
    path.write_text('{"format": 9}')
    with pytest.raises(InputError, match="format 9"):
        run.diagnosis()
    path.write_text("{")
    with pytest.raises(ChiaroError, match="is not JSON"):
        run.diagnosis()


def test_embeddings_have_plain_names(run):
    assert run.embeddings("train") == run.folder / "embeddings" / "train.npz"
    for name in ("", "../x", ".x", "a/b"):
        with pytest.raises(InputError, match="plain name"):
            run.embeddings(name)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(text, values, max_size=4))
def test_toml_reads_back_as_it_was(settings):
    assert tomllib.loads(to_toml(settings)) == settings


def test_toml_of_tuples_numpy_and_nan():
    found = tomllib.loads(to_toml({"a": (1, 2), "b": np.float64(0.5), "c": math.nan, "d": 1e16}))
    assert found["a"] == [1, 2]
    assert (found["b"], found["d"]) == (0.5, 1e16)
    assert math.isnan(found["c"])


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 5000 + "]" * 5000,
        "a = " + "9" * 5000,
        "a = 2020-13-45",
        "a = {" * 900,
        "=",
        "a = 1\na = 2",
    ],
)
def test_settings_that_are_no_toml_are_a_sentence(tmp_path, text):
    run = Run.create(tmp_path / "r", {"seed": 0})
    (run.folder / "settings.toml").write_text(text)
    with pytest.raises(InputError, match="is not TOML"):
        Run.open(run.folder)


def test_a_pipe_as_history_or_diagnosis_does_not_wait(tmp_path):
    run = Run.create(tmp_path / "r", {"seed": 0})
    os.mkfifo(run.folder / "history.jsonl")
    with pytest.raises(ChiaroError, match="not a regular file"):
        run.history()
    os.mkfifo(run.folder / "diagnosis.json")
    assert run.diagnosis() is None


def test_numbers_of_five_thousand_digits_are_a_problem_of_their_line(tmp_path):
    run = Run.create(tmp_path / "r", {"seed": 0})
    lines = ['{"step": 1}', '{"step": ' + "9" * 5000 + "}", "[" * 50000, '{"step": 2}']
    (run.folder / "history.jsonl").write_text("\n".join(lines) + "\n")
    assert [record["step"] for record in run.history().records] == [1, 2]
    assert len(run.history().problems) == 2


# ---- a power cut ----


def synced(monkeypatch):
    """The names of files and folders that are synced from now on, in order."""
    real, names = os.fsync, []

    def fsync(handle):
        number = handle if isinstance(handle, int) else handle.fileno()
        names.append(os.readlink(f"/proc/self/fd/{number}"))
        return real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_name_of_a_new_run_survives_a_power_cut(tmp_path, monkeypatch):
    names = synced(monkeypatch)
    run = Run.create(tmp_path / "a" / "b", {"seed": 0})
    for above in (tmp_path, tmp_path / "a", run.folder):  # each folder that a name was added to
        assert str(above) in names
    assert names.index(str(tmp_path)) < names.index(str(tmp_path / "a"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_records_are_synced_when_asked(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "run", {"seed": 0})
    names = synced(monkeypatch)
    run.sync_history()
    assert names == []
    run.append({"step": 1}, durable=False)
    assert names == []
    run.sync_history()
    assert names == [str(run.folder / "history.jsonl"), str(run.folder)]


# ---- TOML of unknown origin ----


@pytest.mark.parametrize(
    "text", ["[" * 3000 + "]" * 3000, "9" * 5000, "0x" + "f" * 4500, str(2**64), str(-(2**63) - 1)]
)
def test_values_that_toml_lacks_are_sentences(text):
    for read in (toml_value, lambda value: from_toml(f"a = {value}")):
        with pytest.raises(InputError, match=r"nests too deeply|Exceeds the limit|of which TOML"):
            read(text)
    assert toml_value(str(2**63)) == 2**63


def test_a_settings_file_that_is_a_device_or_a_pipe_is_a_sentence(tmp_path):
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("zero.toml", "pipe.toml"):
        with pytest.raises(InputError, match="is not a regular file"):
            read_toml(tmp_path / name)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_toml(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "known",
    [
        3,
        None,
        {"rows": []},
        {"path": 1},
        {"values": "x"},
        {"code": {"a": 1}},
        {"code": None},
        {"d": True},
    ],
    ids=str,
)
def test_descriptions_of_objects_that_are_none_are_a_sentence(tmp_path, known):
    run = Run.create(tmp_path / "run", {})
    good = {"path": "a.B", "rows": 3, "d": None, "values": {"d": "8"}, "code": {}, "more": [1]}
    run.write_objects({"encoder": good})
    assert run.objects() == {"encoder": good}
    (run.folder / "objects.json").write_text(json.dumps({"format": 1, "encoder": known}))
    with pytest.raises(InputError, match=r"does not describe an object as we do, at `encoder"):
        run.objects()
