"""What `diagnose` takes beside a file of ours, by Python and by the command line."""

import json

import numpy as np
import pytest

import chiaroscuro as cs
from chiaroscuro import cli
from chiaroscuro.diagnostics import Inputs, diagnose, read
from chiaroscuro.errors import InputError

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 150)
X = 3 * np.eye(3, 6)[Y] + RNG.normal(size=(150, 6))


def run(*words, capsys):
    status = cli.main(["diagnose", *map(str, words)])
    return status, capsys.readouterr()


def test_usual_names_pairs_labels_history_and_settings_in_one_call(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", X=X)
    np.savez(tmp_path / "b.npz", X=X + 0.1 * RNG.normal(size=X.shape))
    (tmp_path / "l.csv").write_text("label\n" + "\n".join("xyz"[y] for y in Y))
    log = "\n".join(json.dumps({"iter": k, "train_loss": 4.0 - k / 10}) for k in range(20))
    (tmp_path / "log.jsonl").write_text(log)
    (tmp_path / "s.json").write_text(json.dumps({"batch_size": 32, "temperature": 0.2}))
    beside = ["--pairs", tmp_path / "b.npz", "--labels", tmp_path / "l.csv"]
    beside += ["--history", tmp_path / "log.jsonl", "--settings", tmp_path / "s.json"]
    status, said = run(tmp_path / "a.npz", *beside, "--json", capsys=capsys)
    assert status == 0, said.err
    found = json.loads(said.out)
    measures = found["measures"]
    assert measures["alignment"] < 0.1
    assert measures["n_classes"] == 3
    assert measures["first_loss"] == 4.0
    assert measures["tau"] == 0.2
    assert measures["batch"] == 32
    assert found["given"]["history"] == "20 records"
    assert "label_errors" in found["rows"] or measures["label_error_rows"] == 0
    assert found["curves"]["economy"]["sizes"][-1] == 6


def test_pairs_are_joined_by_ids_and_sides_may_differ_in_width():
    ids = np.array([f"s{k}" for k in range(150)])
    order = RNG.permutation(150)
    one = {"h": X, "ids": ids}
    other = {"h": X[order] + 0.01, "ids": ids[order]}
    assert diagnose(one, inputs=Inputs(pairs=other)).measures["alignment"] < 0.01
    with pytest.raises(InputError, match="1 of 150 are not in `embeddings`, `s0` for one"):
        read(one, inputs=Inputs(pairs={"h": X, "ids": np.array(["t", *ids[1:]])}))
    turn = RNG.normal(size=(6, 9))
    right = diagnose(X, inputs=Inputs(pairs=X @ turn))
    wide = right.measures
    apart = diagnose(X, inputs=Inputs(pairs=(X @ turn)[order]))
    control = apart.controls["paired_neighbours"]
    assert wide["paired_neighbours"] > 0.4
    assert control.value < control.mean + 4 * control.sd
    assert (apart.findings[0].name, apart.severity) == ("mispaired_views", "critical")
    assert "with shuffled pairs" in apart.findings[0].evidence
    assert "mispaired_views" in apart.checks
    assert "neighbours shared with the partner" in str(apart)
    assert "mispaired_views" not in [one.name for one in right.findings]
    with pytest.raises(InputError, match=r"each of the 150 rows .* has 149"):
        read(X, inputs=Inputs(pairs=X[:149]))


def test_the_metric_is_the_one_that_is_asked_for():
    y = np.arange(200) % 2
    h = RNG.normal(size=(200, 4))
    h *= ((1 + 4 * y) / np.linalg.norm(h, axis=1))[:, None]  # the class is the length
    far = cs.diagnose({"h": h, "labels": y}, metric="euclidean")
    assert (
        far.measures["knn_accuracy"]
        > 0.9
        > cs.diagnose({"h": h, "labels": y}).measures["knn_accuracy"]
    )
    assert far.sampling["metric"] == "euclidean"
    assert "neighbours by Euclidean distance predict" in far.verdict
    assert far.severity != "critical"
    assert far.measures["cure_euclidean_of"] == "knn_accuracy_of_metrics"
    assert far.measures["cure_euclidean_gain"] == 0


def test_twins_zeros_and_long_rows_of_all_rows_are_seen(tmp_path):
    n = 6000
    x = RNG.normal(size=(n, 5)).astype(np.float32)
    x[:600] = x[600:1200]  # 20 % of all rows have a twin
    x[2000] = 0
    x[3000] *= 1000
    x[[5000, 5001]] = x[[0, 1]]
    split = (np.arange(n) >= 4000).astype(int)
    np.savez(tmp_path / "a.npz", h=x, split=split, ids=np.array([f"s{k}" for k in range(n)]))
    said = []
    found = diagnose(tmp_path / "a.npz", rows=500, progress=lambda *one: said.append(one))
    assert found.measures["all_exact_duplicates"] == 1202
    assert found.measures["near_duplicates"] == pytest.approx(1202 / n)
    assert found.lists["zero"].rows.tolist() == [2000]
    assert found.lists["far"].rows[0] == 3000
    twins = found.lists["duplicates"].table()
    assert len(twins["row"]) == 1202
    partner = dict(zip(twins["row"], twins["twin"], strict=True))
    assert partner[602] in (2,)
    assert all(np.array_equal(x[a], x[b]) for a, b in partner.items())
    across = found.lists["split_duplicates"].table()
    assert sorted(zip(across["id"], across["twin"], strict=True)) == [("s5000", 0), ("s5001", 1)]
    assert found.sampling["scanned"] == n
    assert any(what.startswith("scanning 6,000 rows") for what, _ in said)
    shares = [share for what, share in said if what == "measuring"]
    assert shares == sorted(shares)
    assert len(shares) > 5
    one = next(one for one in found.findings if one.name == "duplicated_samples")
    assert "1,202 of 6,000 rows (20 %) equal another" in one.evidence
    assert one.severity == "warning"


def test_nan_anywhere_in_the_file_is_named():
    x = RNG.normal(size=(3000, 4))
    x[2718, 1] = np.nan
    with pytest.raises(InputError, match=r"1 of 3000 rows of `h` .*: row 2718"):
        diagnose(x, rows=100, seed=1)


def test_fail_on_is_an_exit_status(tmp_path, capsys):
    np.save(tmp_path / "bad.npy", np.ones((100, 8)))
    status, said = run(tmp_path / "bad.npy", "--fail-on", "critical", capsys=capsys)
    assert status == 1
    assert "--fail-on critical: 1 finding: full_collapse" in said.err
    assert run(tmp_path / "bad.npy", capsys=capsys)[0] == 0


def test_two_subjects_are_compared(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    worse = X.copy()
    worse[:30] = RNG.normal(size=(30, 6))
    np.savez(tmp_path / "b.npz", X=worse, y=Y)
    status, said = run(tmp_path / "a.npz", tmp_path / "b.npz", "--json", capsys=capsys)
    assert status == 0, said.err
    found = json.loads(said.out)
    assert found["kind"] == "comparison"
    assert found["differences"]["knn_accuracy"] < 0
    assert found["versus"]["accuracy"][0] > found["versus"]["accuracy"][1]
    assert np.mean(np.array(found["rows"]["first_better"]["row"]) < 30) > 0.8
    status, said = run(
        tmp_path / "a.npz", tmp_path / "b.npz", "--out", tmp_path / "c", capsys=capsys
    )
    assert "p = " in said.out
    assert (tmp_path / "c" / "comparison.json").exists()
    few = cs.compare(X, X[:70])
    assert few.versus is None
    assert "there are 150 and 70" in str(few)
    status, said = run(tmp_path / "a.npz", tmp_path / "b.npz", "--batch", 3, capsys=capsys)
    assert status == 2
    assert "--batch, which are for one" in said.err


def test_drift_is_in_the_page_the_json_and_the_lists(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", X=X)
    now = X + 1e-3
    now[17] *= -2
    np.savez(tmp_path / "b.npz", X=now)
    status, said = run(tmp_path / "b.npz", "--against", tmp_path / "a.npz", capsys=capsys)
    assert status == 0, said.err
    assert "encoder: same" in said.out
    assert "compared row by row" in said.out
    assert "moved (1)" in said.out
    found = cs.diagnose(tmp_path / "b.npz", against=tmp_path / "a.npz").json()
    assert found["drift"]["encoder"] == "same"
    assert "same encoder, no other law seen" in found["verdict"]
    assert "1 row moved more than the others" in found["verdict"]
    assert found["rows"]["moved"]["ids"] == [17]
    assert found["drift"]["test"]["power"]["1.0"] == 1


def test_what_is_not_there_is_a_wrong_call(tmp_path, capsys):
    np.save(tmp_path / "a.npy", X)
    status, said = run(tmp_path / "a.npy", "--labels", tmp_path / "no.csv", capsys=capsys)
    assert status == 2
    assert "no.csv` does not exist" in said.err


def test_ids_that_are_row_numbers_join_labels_of_rows_without_ids(tmp_path):
    y = np.arange(150) % 3
    order = RNG.permutation(150)
    lines = [f"{k},{y[k]}" for k in order]
    (tmp_path / "labels.csv").write_text("\n".join(["id,label", *lines]) + "\n")
    labels = read(X, inputs=Inputs(labels=tmp_path / "labels.csv")).embeddings.labels
    np.testing.assert_array_equal(labels, y)
    lines = [f"{k + 500},{y[k]}" for k in range(150)]  # of elsewhere: in the order of the rows
    (tmp_path / "labels.csv").write_text("\n".join(["id,label", *lines]) + "\n")
    labels = read(X, inputs=Inputs(labels=tmp_path / "labels.csv")).embeddings.labels
    np.testing.assert_array_equal(labels, y)


def test_tensors_inside_dictionaries_have_dotted_names(tmp_path):
    import torch

    path = tmp_path / "state.pt"
    torch.save({"epoch": 3, "state_dict": {"embedding": {"weight": torch.from_numpy(X)}}}, path)
    np.testing.assert_allclose(read(path).embeddings.h, X)
    two = {"a": torch.from_numpy(X), "b": {"c": torch.from_numpy(X)}}
    torch.save({"state_dict": two}, path)
    with pytest.raises(InputError, match=r"`state_dict.a` \(150, 6\).*`state_dict.b.c` \(150, 6\)"):
        read(path)
    named = read(path, inputs=Inputs(names={"state_dict.b.c": "h"}))
    np.testing.assert_allclose(named.embeddings.h, X)


def test_differences_below_rounding_are_none(tmp_path):
    turn = np.linalg.qr(RNG.normal(size=(6, 6)))[0]
    assert "e-1" not in str(cs.compare(X, X @ turn)).split("Of the ten")[0].split("index")[0]


def test_settings_of_another_loop_are_not_given_keys_that_they_lack():
    twice = np.vstack([X, X])
    y = np.arange(300) % 2
    foreign = cs.diagnose({"h": twice, "labels": y}, settings={"batch_size": 64, "lr": 0.1})
    named = [one for one in foreign.findings if one.name == "duplicated_samples"]
    assert named
    assert all(one.settings == {} for one in foreign.findings)
    own = cs.diagnose({"h": twice, "labels": y}, settings={"data": {"distinct": False}})
    named = [one for one in own.findings if one.name == "duplicated_samples"]
    assert named[0].settings == {"data.distinct": True}


def test_twins_of_a_whole_file_are_counted_where_a_sample_has_none(tmp_path):
    """A fifth of 40,000 rows have one twin; among 400 of them hardly a pair is drawn."""
    rows = np.random.default_rng(3).normal(size=(40_000, 8)).astype(np.float32)
    rows[:4000] = rows[-4000:]
    np.save(tmp_path / "a.npy", rows)
    found = cs.diagnose(tmp_path / "a.npy", rows=400)
    first = found.findings[0]
    assert (first.name, first.severity) == ("duplicated_samples", "warning")
    assert "8,000 of 40,000 rows (20 %) equal another, bit for bit" in first.evidence
    assert "0.0 %" not in first.evidence
    assert "listed as `duplicates`" in first.advice
    assert found.lists["duplicates"].total == 8000
    assert found.json()["findings"][0]["rows"] == "duplicates"
