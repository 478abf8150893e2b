"""The diagnosis: what it measures, says, refuses and writes."""

import json
import math

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro import cli, diagnostics
from chiaroscuro.diagnostics import Context, diagnose, monitor, pair_rank
from chiaroscuro.diagnostics.assembly.classes import explained_by_class
from chiaroscuro.diagnostics.assembly.page import sparkline, text
from chiaroscuro.errors import InputError


def clusters(n=300, d=16, seed=0, n_classes=4):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, n_classes, n)
    return draw.normal(size=(n_classes, d))[y] * 2 + draw.normal(size=(n, d)), y


def arrays(n=300, d=16, seed=0):
    h, y = clusters(n, d, seed)
    draw = np.random.default_rng(seed + 1)
    W = draw.normal(size=(d, 8))
    views = [h + 0.5 * draw.normal(size=h.shape) for _ in range(2)]
    found = {"h": h, "z": h @ W, "labels": y}
    for side, view in enumerate(views, start=1):
        found |= {f"h{side}": view, f"z{side}": view @ W}
    return found


# ---- measures ----


def test_measures_are_those_of_the_diagnostics():
    a = arrays()
    found = diagnose(a).measures
    for prefix, rows in (("", a["h"]), ("z_", a["z"])):
        assert found[f"{prefix}effective_rank"] == diagnostics.effective_rank(rows)
        assert found[f"{prefix}participation_ratio"] == diagnostics.participation_ratio(rows)
        assert found[f"{prefix}numerical_rank"] == diagnostics.numerical_rank(rows)
        assert found[f"{prefix}uniformity"] == pytest.approx(diagnostics.uniformity(rows))
        assert found[f"{prefix}mean_cosine"] == diagnostics.mean_cosine(rows)
        knn = diagnostics.knn_leave_one_out(rows, a["labels"], 20, "majority")
        assert found[f"{prefix}knn_accuracy"] == pytest.approx(knn, abs=2 / len(rows))
    assert found["alignment"] == pytest.approx(diagnostics.alignment(a["h1"], a["h2"]))
    assert found["z_alignment"] == pytest.approx(diagnostics.alignment(a["z1"], a["z2"]))


def test_a_split_decides_who_is_asked():
    h, y = clusters()
    split = (np.arange(len(y)) % 3 == 0).astype(int)
    found = diagnose({"h": h, "labels": y, "split": split}).measures
    train, test = (diagnostics.Labelled(h[split == s], y[split == s]) for s in (0, 1))
    knn = diagnostics.knn_accuracy(train, test, 20, "majority")
    assert found["knn_accuracy"] == pytest.approx(knn, abs=2 / len(y))
    assert found["linear_accuracy"] == pytest.approx(diagnostics.ridge_probe(train, test))


def test_every_measure_of_pairs_stands_beside_shuffled_pairs():
    found = diagnose(arrays(), Context(cs.InfoNCE(cs.Cosine(tau=0.5)), 64))
    assert set(found.controls) == {
        *("alignment", "pair_rank", "z_alignment", "z_pair_rank", "loss", "recall_1", "z_recall_1"),
        *("knn_accuracy", "linear_accuracy", "z_knn_accuracy", "z_linear_accuracy"),
    }
    for name in ("knn_accuracy", "linear_accuracy"):
        assert found.controls[name].mean < 0.45 < found.measures[name]
    assert found.controls["pair_rank"].mean == pytest.approx(0.5, abs=0.05)
    assert found.controls["loss"].mean > found.measures["loss"]
    low, high = found.intervals["alignment"].low, found.intervals["alignment"].high
    assert low < found.measures["alignment"] < high


def test_pair_rank_is_the_share_of_strangers_farther_away():
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(2, 7, 3))
    u, w = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    wins = []
    for i in range(7):
        for j in range(7):
            if i != j:
                wins += [u[i] @ w[i] > u[i] @ w[j], u[i] @ w[i] > u[j] @ w[i]]
    assert pair_rank(a, b) == pytest.approx(np.mean(wins))


def test_explained_by_class_is_about_0_by_chance():
    draw = np.random.default_rng(0)
    h, y = draw.normal(size=(200, 40)), draw.integers(0, 50, 200)
    assert abs(explained_by_class(h, np.unique(y, return_inverse=True)[1]).mean()) < 0.1


def test_the_collapsed_loss_is_log_of_the_candidates():
    context = Context(cs.InfoNCE(), 64, history=[{"loss": 4.0}, {"step": 3}, {"loss": math.nan}])
    found = diagnose(np.random.default_rng(0).normal(size=(100, 4)), context).measures
    assert found["collapsed_loss"] == pytest.approx(math.log(127))
    assert found["last_loss"] == 4.0


def test_the_model_and_the_parameters_of_views_say_more():
    a = arrays()
    draw = np.random.default_rng(0)
    turned = np.zeros(300, dtype=[("angle", float)])
    turned["angle"] = draw.random(300)
    a["h2"] = a["h1"] + turned["angle"][:, None] * draw.normal(size=a["h1"].shape)
    model = torch.nn.Linear(16, 4)
    x = torch.from_numpy(a["h"]).float()
    found = diagnose(a, Context(model=model, inputs=x, parameters=turned)).measures
    assert found["movement_by_angle"] > 0.3
    assert found["kernel_alignment"] > 0.1
    assert found["cluster_agreement_labels"] > 0.5
    assert found["projector_linearity"] == pytest.approx(1)


# ---- what it says ----


def test_what_is_missing_is_what_it_could_tell():
    few = " ".join(diagnose(arrays()["h"]).could_tell)
    for word in ("labels", "z1", "objective", "factors", "untrained", "history", "`z`"):
        assert word in few
    assert "`labels`" not in " ".join(diagnose(arrays()).could_tell)


def test_too_few_rows_are_not_judged():
    found = diagnose(np.ones((20, 8)))
    assert found.verdict.startswith("Too few rows to judge: 20 of at least 64")
    assert [(one.name, one.severity) for one in found.findings] == [("too_few_rows", "note")]


def test_a_sample_is_stated():
    found = diagnose(np.random.default_rng(0).normal(size=(500, 4)), rows=100, seed=3)
    assert found.sampling["n"] == 500
    assert found.sampling["rows"] == 100
    assert "100 of 500 rows" in text(found)


def test_rows_that_findings_name_are_rows_of_the_whole():
    h = np.random.default_rng(0).normal(size=(1000, 16))
    h[777] = 1e4 * h[777]
    found = diagnose(h, rows=990, seed=1)
    assert found.lists["far"].rows.tolist() == [777]
    assert diagnose(h).lists["far"].table()["row"] == [777]


def test_lists_have_ids_and_findings_name_their_list():
    h = np.random.default_rng(0).normal(size=(300, 8))
    h[:40] = h[40:80]
    names = np.array([f"s{row}" for row in range(300)])
    found = diagnose({"h": h, "ids": names})
    twins = found.lists["duplicates"].table()
    assert sorted(twins["row"]) == list(range(80))
    assert all(abs(a - b) == 40 for a, b in zip(twins["row"], twins["twin"], strict=True))
    assert twins["id"] == [f"s{row}" for row in twins["row"]]
    written = found.json()
    assert len(written["rows"]["duplicates"]["ids"]) == 80
    named = {one["name"]: one["rows"] for one in written["findings"]}
    assert named["duplicated_samples"] == "near_twins"
    with pytest.raises(InputError, match="received `nothing`"):
        found.rows("nothing")


def test_the_document_is_json_with_the_fields_others_read():
    found = json.loads(json.dumps(diagnose(np.ones((100, 8))).json(), allow_nan=False))
    assert {"format", "subject", "verdict", "findings", "measures", "given"} <= set(found)
    assert {"could_tell", "controls", "sampling"} <= set(found)
    one = found["findings"][0]
    assert one["name"] == "full_collapse"
    assert one["severity"] == "critical"
    assert one["change"] == [f"{key}={value}" for key, value in one["settings"].items()]
    assert {"evidence", "cause", "advice", "expect", "paper"} <= set(one)


def test_the_report_reads_it():
    from chiaroscuro.report import diagnosis_of

    found = diagnosis_of(diagnose(np.ones((100, 8))).json())
    assert found["findings"][0]["name"] == "full_collapse"
    assert found["findings"][0]["change"] == []
    assert found["measures"]["mean_cosine"] == 1.0


def test_sparkline():
    assert sparkline([1.0, 1e-6, 0.0]) == "█▁▁"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert len(sparkline(np.arange(100.0, 0, -1), width=30)) == 30


# ---- refusals ----


def refused(call, *said):
    with pytest.raises(cs.InputError) as caught:
        call()
    for words in said:
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nan_rows_are_named():
    h = np.random.default_rng(0).normal(size=(100, 4))
    h[[7, 40], 1] = np.nan
    refused(lambda: cs.diagnose(h), "2 of 100 rows of `h`", "rows 7, 40")


def test_bad_arrays_are_refused_in_one_sentence():
    h, y = clusters(100, 4)
    refused(lambda: cs.diagnose(h[:1]), "at least 2 rows", "has 1")
    refused(lambda: cs.diagnose(h[:, :1]), "at least 2 dimensions", "`h`")
    refused(lambda: cs.diagnose({"h": h, "labels": y * 0}), "at least 2 classes", "100", "are 0")
    refused(lambda: cs.diagnose({"h": h, "labels": y[:50]}), "100 in `h`", "50 in `labels`")
    refused(lambda: cs.diagnose({"labels": y}), "labels")


def test_bad_files_are_refused_in_one_sentence(tmp_path, capsys):
    text_file, objects = tmp_path / "notes.npz", tmp_path / "objects.npz"
    text_file.write_text("not an archive")
    np.savez(objects, h=np.array([{"a": 1}, None], dtype=object))
    holes = tmp_path / "holes.npy"
    np.save(holes, np.full((90, 4), np.nan))
    # 1: of these data no diagnosis can be made; 2: the call names what is not there
    for path, status in ((text_file, 1), (objects, 1), (holes, 1), (tmp_path / "nowhere.npy", 2)):
        assert cli.main(["diagnose", str(path)]) == status
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert path.name in captured.err


# ---- files, runs, the command ----


def test_a_foreign_file_with_one_matrix_is_h(tmp_path):
    h, y = clusters(100, 4)
    np.savez(tmp_path / "theirs.npz", embeddings=h, labels=y)
    assert cs.diagnose(tmp_path / "theirs.npz").measures["d"] == 4


def test_the_command_prints_one_document_and_writes_figures(tmp_path, capsys):
    np.save(tmp_path / "h.npy", clusters(100, 4)[0].astype(np.float32))
    argv = ["diagnose", str(tmp_path / "h.npy"), "--json", "--out", str(tmp_path / "out")]
    assert cli.main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["subject"] == "h.npy"
    assert json.loads((tmp_path / "out" / "diagnosis.json").read_text()) == found
    pytest.importorskip("matplotlib")
    assert (tmp_path / "out" / "spectrum.svg").stat().st_size > 1000
    assert (tmp_path / "out" / "spectrum.png").stat().st_size > 1000


def test_a_run_is_diagnosed_with_its_views_and_settings(tmp_path, capsys):
    h, y = clusters(200, 6)
    np.savez(tmp_path / "data.npz", x=h.astype(np.float32), labels=y)
    run = cs.train(
        {
            "epochs": 2,
            "batch": 50,
            "data": {"source": str(tmp_path / "data.npz")},
            "views": {"first": "Jitter(noise=0.3)"},
            "network": {
                "encoder": "MLP(d_in=6, d=8, depth=1, width=16)",
                "projector": "Projector(d=4)",
            },
            "optimiser": {"name": "adamw", "lr": 1e-3},
        },
        tmp_path / "run",
        [cs.engine.watch(monitor, rows=64)],
    )
    record = run.history().records[-1]
    assert {"effective_rank", "z_effective_rank", "mean_cosine", "z_norm"} <= set(record)
    assert cli.main(["diagnose", str(run.folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measures"]["candidates"] == 99
    assert found["measures"]["tau"] == 0.5
    assert {"h1", "z2", "layer_untrained", "objective", "settings", "history"} <= set(
        found["given"]
    )
    assert found["measures"]["regions_visited"] > 1
    assert 0 <= found["measures"]["views_annihilated"] <= 1
    assert run.diagnosis()["verdict"] == found["verdict"]
    assert cli.main(["diagnose", str(run.folder), "--batch", "3"]) == 2


def test_monitor_is_the_diagnostics_and_takes_tensors_with_gradient():
    z = torch.randn(100, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    found = monitor(z, z.detach() + 0.1)
    assert found["effective_rank"] == diagnostics.effective_rank(z.detach())
    assert found["alignment"] == diagnostics.alignment(z.detach(), z.detach() + 0.1)
    assert all(isinstance(value, float) for value in found.values())


def test_a_table_of_two_spaces_fits_eighty_columns():
    """No number is broken or cut on the narrowest terminal in use; long names wrap instead."""
    rng = np.random.default_rng(0)
    h, noise = rng.normal(size=(300, 128)), lambda: 0.1 * rng.normal(size=(300, 128))
    z = h[:, :64]
    views = {"h1": h + noise(), "h2": h + noise(), "z1": z, "z2": z + noise()[:, :64]}
    shown = text(diagnose(cs.Embeddings(h=h, z=z, labels=np.arange(300) % 5, **views)), 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert ["h", "shuffled", "z", "shuffled"] in [line.split() for line in shown.splitlines()]
    assert "120 of 128" in shown
    assert "…" not in shown.partition("Rows worth a look")[0]
