"""What a page is about: runs, folders, files, labs, a diagnosis."""

import json

import numpy as np
import pytest

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.errors import ChiaroError, InputError
from chiaroscuro.report import diagnosis_of, subjects
from chiaroscuro.report.document import document, history_of
from chiaroscuro.report.points import shown
from chiaroscuro.report.subject import find_runs
from report.conftest import DIAGNOSIS, make_run


def test_a_run_has_everything(run):
    (found,) = subjects(run.folder)
    assert found.name == "first"
    assert [frame.epoch for frame in found.frames] == [0, 1, 2, 3, 4]
    assert found.embeddings.labels is not None
    assert found.embeddings.thumbnails.shape == (240, 16, 16, 3)
    assert found.diagnosis["verdict"] == DIAGNOSIS["verdict"]
    assert subjects(run)[0].name == subjects(str(run.folder))[0].name == "first"


def test_a_folder_of_runs_and_a_list_are_several(run, second, tmp_path):
    make_run(tmp_path / "deep" / "er" / "one", n=12, epochs=1)
    make_run(tmp_path / "two", n=12, epochs=1)
    assert [one.name for one in subjects(tmp_path)] == ["one", "two"]
    assert [one.name for one in subjects([run, second, run])] == ["first", "second", "first (2)"]


def test_links_are_not_followed(run, tmp_path):
    (tmp_path / "link").symlink_to(run.folder)
    assert find_runs(tmp_path) == []


def test_files_and_arrays(tmp_path):
    np.save(tmp_path / "bare.npy", np.eye(5))
    Embeddings(z=np.eye(4)).save(tmp_path / "other.npz")
    assert subjects(tmp_path / "bare.npy")[0].embeddings.h.shape == (5, 5)
    assert subjects(tmp_path)[0].name == "other"
    assert subjects(Embeddings(h=np.eye(3)))[0].run is None


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ([], "at least 1 run or file"),
        (3, "received `int`"),
        ("/no/such/place", "`/no/such/place` does not exist"),
    ],
)
def test_sentences(what, sentence):
    with pytest.raises(InputError, match=sentence):
        subjects(what)


def test_an_empty_folder_says_what_is_missing(tmp_path):
    with pytest.raises(InputError, match=r"no run \(`settings.toml`\), no `.npz`"):
        subjects(tmp_path)


def test_snapshots_are_joined_by_id_with_the_embeddings_of_all(tmp_path):
    run = make_run(tmp_path / "one", n=30, epochs=2)
    order = np.random.default_rng(0).permutation(30)
    ids = np.array([f"s{row:04d}" for row in order])
    layers = {"untrained": order[:, None].astype(float)}
    Embeddings(h=np.ones((30, 12)), ids=ids, layers=layers).save(run.embeddings("all"))
    (found,) = subjects(run)
    assert found.embeddings.layers["untrained"].ravel().tolist() == list(range(30))
    last = Embeddings.load(run.embeddings("epoch-0002"))
    np.testing.assert_array_equal(found.embeddings.h, last.h)


def test_rows_that_are_nowhere_else_are_said(tmp_path):
    run = make_run(tmp_path / "one", n=30, epochs=1)
    Embeddings(h=np.ones((4, 12)), ids=np.arange(4)).save(run.embeddings("all"))
    (found,) = subjects(run)
    (note,) = found.notes
    assert note.startswith("30 of the 30 rows of the snapshots are not in the other embeddings")


# ---- the rows that are shown ----


def test_more_rows_than_points_are_sampled_by_label_and_said(run):
    rows = shown(subjects(run)[0], 60)
    assert rows.embeddings.n == 60
    assert rows.sentence == "60 of 240 samples are shown, evenly spaced, stratified by label."
    assert np.bincount(rows.embeddings.labels).tolist() == [20, 20, 20]
    for _, vectors in rows.frames:
        assert vectors["h"].shape == (60, 12)
    where = [int(one[1:]) for one in rows.embeddings.ids]
    whole = Embeddings.load(run.embeddings("epoch-0002"))
    np.testing.assert_array_equal(rows.frames[2][1]["z"], whole.z[where])


def test_rows_with_nan_are_left_out_and_said():
    h = np.eye(8)
    h[3, 0] = np.nan
    rows = shown(subjects(Embeddings(h=h))[0])
    assert rows.sentence == "All 7 samples are shown; 1 with NaN or infinity are left out."


def test_a_diverged_epoch_is_drawn_all_the_same(tmp_path):
    run = make_run(tmp_path / "one", n=30, epochs=2)
    path = run.embeddings("epoch-0001")
    found = Embeddings.load(path)
    h = found.h.copy()
    h[:4] = np.nan
    Embeddings(ids=found.ids, h=h, z=found.z).save(path)
    made = document(subjects(run))["runs"][0]
    assert made["frames"][1]["h"]["not_finite"] == 4
    json.dumps(made, allow_nan=False)


@pytest.mark.parametrize(
    "embeddings",
    [
        Embeddings(labels=np.arange(3)),
        Embeddings(h=np.full((5, 2), np.nan)),
        Embeddings(h=np.zeros((0, 4))),
    ],
)
def test_nothing_to_draw_is_no_failure(embeddings):
    made = document(subjects(embeddings))["runs"][0]
    assert made["samples"] is None


@pytest.mark.parametrize(
    "embeddings",
    [
        Embeddings(h=np.zeros((6, 4))),
        Embeddings(h=np.random.default_rng(0).normal(size=(3, 1))),
        Embeddings(z1=np.eye(6), z2=np.eye(6)),
        Embeddings(h=np.eye(9), texts=[f"text {i}" for i in range(9)]),
        Embeddings(h=np.eye(9), labels=np.full(9, -1)),
        Embeddings(h=np.eye(4), labels=[0, 1, 2, 3], factors=np.zeros((4, 1))),
        Embeddings(h=np.eye(300), layers={"tsne": np.random.default_rng(0).normal(size=(300, 2))}),
    ],
    ids=lambda e: repr(e)[:60],
)
def test_odd_embeddings_make_a_document(embeddings):
    made = document(subjects(embeddings))
    json.dumps(made, allow_nan=False)
    assert made["runs"][0]["samples"]["n"] == embeddings.n


# ---- history, labs, diagnosis ----


def test_a_long_history_is_thinned():
    records = [{"step": s, "loss": 1.0} for s in range(5000)]
    records += [{"step": 5000, "epoch": 1, "mean_loss": 1.0, "note": "words"}]
    found = history_of(records)
    assert len(found["steps"]["step"]) == 2000
    assert found["steps"]["step"][-1] == 4999
    assert list(found["epochs"]) == ["step", "epoch", "mean_loss"]


def test_labs_with_their_figures(tmp_path):
    folder = tmp_path / "quick" / "calder2025"
    folder.mkdir(parents=True)
    claim = {"id": "V4", "statement": "s", "paper": 1, "ours": {"a": 1.5}, "verdict": "holds"}
    record = {"lab": "atoms", "paper": "calder2025", "scale": "quick", "claims": [claim]}
    (folder / "atoms.json").write_text(json.dumps(record))
    (folder / "atoms.data.json").write_text("[]")
    (folder / "atoms.png").write_bytes(b"png")
    (folder / "foreign.json").write_text("not json")
    (found,) = subjects(tmp_path)
    made = document([found])["runs"][0]
    assert made["labs"][0]["claims"] == [claim]
    assert made["labs"][0]["figure"] == "data:image/png;base64,cG5n"


def test_a_diagnosis_in_either_form():
    found = diagnosis_of(DIAGNOSIS)
    first, last = found["findings"]
    assert first["severity"] == "critical"  # the worst comes first
    assert first["change"] == ["--set optimiser.weight_decay=1e-6"]
    assert last["cause"] == ""
    other = diagnosis_of(
        {"findings": [{"name": "x", "severity": "odd", "advice": "do", "settings": {"a.b": True}}]}
    )
    assert (
        other["findings"][0] | {"severity": "note", "advice": "do", "change": ["--set a.b=true"]}
        == (other["findings"][0])
    )
    assert diagnosis_of({})["verdict"] == "No problem found."
    with pytest.raises(InputError, match="a list of findings; received str"):
        diagnosis_of({"findings": "none"})


def test_a_diagnosis_may_be_handed_in(second):
    (found,) = subjects(second, {"verdict": "Fine."})
    assert found.diagnosis["verdict"] == "Fine."


def test_a_damaged_file_is_a_sentence(tmp_path):
    run = Run.create(tmp_path / "one", {"seed": 0})
    run.embeddings("all").write_bytes(b"no zip")
    with pytest.raises(ChiaroError, match=r"`all.npz` \(6 bytes\) is not an `.npz`"):
        subjects(run)


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        (["chiaro", "train", "my data"], "chiaro train 'my data'"),
        (["mine.py", "3"], "python mine.py 3"),
        (["-c"], None),
        ([], None),
        ([5], None),
        (None, None),
    ],
)
def test_only_what_a_person_types_is_shown_as_a_command(tmp_path, command, typed):
    run = make_run(tmp_path / "run", n=12, epochs=1)
    path = run.folder / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"command": command}))
    (made,) = document(subjects(run.folder), maps=())["runs"]
    assert made["made"]["command"] == typed
