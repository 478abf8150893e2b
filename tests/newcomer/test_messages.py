"""Fourteen messages that puzzled new users, each as it should be: one sentence that helps."""

import io
import sys

import numpy as np
import pytest
import torch

import chiaroscuro as cs
from chiaroscuro import cli
from chiaroscuro.engine import load_networks, presets
from chiaroscuro.engine.progress import Progress
from chiaroscuro.errors import ChiaroError, InputError, install_command


def typed(capsys, *words):
    status = cli.main(list(words))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def refused(capsys, *words):
    status, out, err = typed(capsys, *words)
    assert (status, out) == (2, ""), err
    assert err.count("\n") == 1
    return err


def test_01_the_report_of_a_run_that_is_not_there(capsys):
    err = refused(capsys, "report", "runs/nope")
    assert "`runs/nope` does not exist" in err
    assert "--out" not in err


def test_02_evaluate_names_only_what_is_missing(capsys, tmp_path):
    h, labels = np.eye(8), np.arange(8)
    np.savez(tmp_path / "a.npz", h=h, split=labels % 2)
    np.savez(tmp_path / "b.npz", h=h, labels=labels % 2)
    no_labels, no_split = (
        refused(capsys, "evaluate", str(tmp_path / n)) for n in ("a.npz", "b.npz")
    )
    assert "needs `labels`" in no_labels
    assert "needs a held-out" not in no_labels
    assert "needs a held-out `split`" in no_split
    assert "needs `labels`" not in no_split


@pytest.mark.parametrize("name", ["SimCLR", "MoCo", "BYOL", "VICReg", "CLIP", "SupCon"])
def test_03_methods_are_cited_by_their_names(capsys, name):
    status, out, err = typed(capsys, "cite", name)
    assert (status, err) == (0, "")
    assert out.startswith("@")


def test_04_an_option_that_is_a_setting(capsys):
    assert "`--set epochs=3`" in refused(capsys, "train", "simclr", "--epochs", "3")
    assert "`--set batch=32`" in refused(capsys, "train", "digits", "--batch-size", "32")
    assert "`--set optimiser.lr=0.1`" in refused(capsys, "train", "digits", "--learning-rate=0.1")
    assert "Cosine(tau=0.1)" in refused(capsys, "train", "digits", "--temperature", "0.1")


def test_data_of_a_run_that_moved(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("\n".join(f"a line of number {i}" for i in range(40)))
    assert typed(capsys, "train", "lines.txt", "--set", "epochs=1", "--out", "one")[0] == 0
    (tmp_path / "lines.txt").rename("moved.txt")
    wrong = refused(capsys, "embed", "one", "--out", "lines.npz")
    assert "lines.txt` does not exist" in wrong
    assert "`--data`" in wrong
    assert typed(capsys, "embed", "one", "--data", "moved.txt", "--out", "lines.npz")[0] == 0


def test_an_option_that_is_nearly_right(capsys):
    wrong = refused(capsys, "train", "table.csv", "--label", "species")
    assert "did you mean `--labels`?" in wrong


def test_05_doctor_says_where_data_are_looked_for(capsys, monkeypatch):
    monkeypatch.delenv("CHIARO_DATA", raising=False)
    (line,) = (x for x in typed(capsys, "doctor")[1].splitlines() if x.startswith("data "))
    assert "CHIARO_DATA not set" in line
    assert "digits" in line


def test_06_the_list_of_presets_ends_its_sentences(capsys):
    out = typed(capsys, "preset", "list")[1]
    said: dict[str, str] = {}
    for line in out.splitlines():
        if not line.startswith(" "):
            name, _, text = line.partition(" ")
            said[name] = text.strip()
        else:
            said[name] += f" {line.strip()}"
    assert set(said) == set(presets())
    assert [name for name, text in said.items() if not text.endswith((".", ")"))] == []


def test_07_rows_of_a_table_are_not_counted_as_images(capsys, tmp_path):
    np.savez(tmp_path / "t.npz", x=np.random.default_rng(0).normal(size=(40, 4)))
    words = [str(tmp_path / "t.npz"), "--set", "epochs=1", "--out", str(tmp_path / "run")]
    err = typed(capsys, "train", *words)[2]
    assert "samples/s" in err
    assert "images/s" not in err


def test_08_from_timm_names_the_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ChiaroError, match=r"needs the package `timm`.*`pip install timm`"):
        cs.models.from_timm("resnet18")


def test_09_the_demo_into_a_run_makes_another_beside_it(tmp_path):
    from chiaroscuro.demo import _next_free

    for name in ("run-1", "run-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.toml").touch()
    assert _next_free(tmp_path / "run-1") == _next_free(tmp_path) == tmp_path / "run-3"


def test_10_load_networks_of_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(InputError, match=r"is not a run: it has no `settings.toml`"):
        load_networks(str(tmp_path))


def test_11_a_clone_is_told_to_install_from_the_clone():
    assert install_command("plots").startswith("pip install -e '/")


def test_12_something_is_printed_before_the_first_epoch_ends():
    stream = io.StringIO()
    with Progress(stream, steps=1000, start=0, batch=8) as shown:
        shown.step(1, 0, 5.0)
        shown.shown -= 60  # a minute later
        shown.step(2, 0, 4.5)
    assert stream.getvalue().startswith("epoch 1, step 2/1000, loss 4.5000")


def test_13_a_vit_at_the_wrong_size_is_one_sentence():
    with pytest.raises(InputError, match=r"needs images of 32x32 pixels.*received 40x40"):
        cs.models.ViT(size=32, patch=4)(torch.zeros(1, 3, 40, 40))


@pytest.mark.extra("parquet")
def test_14_a_parquet_file_with_string_labels_trains_and_is_evaluated(capsys, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    x = np.random.default_rng(0).normal(size=(80, 2))
    columns = {"a": x[:, 0], "b": x[:, 1], "kind": ["uv"[at % 2] for at in range(80)]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    out = str(tmp_path / "run")
    words = [str(tmp_path / "t.parquet"), "--labels", "kind", "--set", "epochs=2", "--out", out]
    status, _, err = typed(capsys, "train", *words)
    assert status == 0, err
    status, table, err = typed(capsys, "evaluate", out)
    assert status == 0, err
    assert "encoder" in table


# ---- what a newcomer types next ----


@pytest.mark.parametrize("kind", ["presets", "settings", "data", "encoders", "views", "objectives"])
def test_everything_that_can_be_set_is_listed(capsys, kind):
    status, out, err = typed(capsys, "list", kind)
    assert (status, err) == (0, "")
    expected = {
        "presets": "simclr ", "settings": "optimiser.lr=0.3 ", "data": ".csv, .tsv",
        "encoders": "ResNet(depth=18,", "views": "SimCLR(size, strength=1.0,",
        "objectives": "InfoNCE(kernel=None,",
    }  # fmt: skip
    assert f"\n{expected[kind]}" in out
    assert max(map(len, out.splitlines())) <= 98


def test_the_list_says_what_can_be_listed(capsys):
    status, out, _ = typed(capsys, "list")
    assert status == 0
    for line in out.splitlines():
        if line.startswith("chiaro list "):
            assert typed(capsys, *line.split()[1:3])[0] == 0


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("optimiser.learning_rate", "did you mean `optimiser.lr`?"),
        ("batch_size", "did you mean `batch`?"),
        ("temperature", "`objective=InfoNCE(kernel=Cosine(tau=0.1))`"),
        ("qqqqq", "`chiaro list settings` shows them all."),
    ],
)
def test_settings_by_the_names_of_other_libraries(capsys, key, wanted):
    assert wanted in refused(capsys, "train", "simclr", "--set", f"{key}=0.1")


def test_unknown_encoders_and_views_say_where_they_are_listed(capsys, tmp_path):
    for key, kind in (("network.encoder=resnet18", "encoders"), ("views.first=crop", "views")):
        said = refused(capsys, "train", "digits", "--set", key, "--out", str(tmp_path / "run"))
        assert f"See `chiaro list {kind}`." in said


def test_the_command_for_a_label_column_is_filled_in(capsys, tmp_path):
    table = tmp_path / "my table.csv"
    table.write_text("a,y\n" + "".join(f"{at},{at % 2}\n" for at in range(40)))
    said = refused(capsys, "train", str(table), "--out", str(tmp_path / "run"))
    assert f"`chiaro train '{table}' --labels y`" in said
    assert "COLUMN" not in said


def test_a_column_of_words_may_be_the_label_and_is_named(capsys, tmp_path):
    """Words become columns, which may leak the label: said before training, with the option."""
    rows = [f"{at},{'red' if at % 3 else 'blue'},{'uv'[at % 2]}" for at in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,colour,species", *rows]) + "\n")
    words = [str(tmp_path / "t.csv"), "--set", "epochs=1", "--out"]
    err = typed(capsys, "train", *words, str(tmp_path / "one"))[2]
    assert (
        "`colour` (2 values), `species` (2 values). If one is the label, add `--labels species`"
        in err
    )
    assert "`chiaro evaluate`, which needs labels too" in err
    err = typed(capsys, "train", *words, str(tmp_path / "two"), "--labels", "species")[2]
    assert "`colour` (2 values)." in err
    assert "If one is the label" not in err
    assert "needs labels too" not in err


def test_one_epoch_has_no_warm_up(tmp_path, monkeypatch):
    """Where the time is enough for one epoch, its learning rate is not spent on rising."""
    from chiaroscuro.engine import suggest, suggestion

    monkeypatch.setattr(suggestion, "_step_seconds", lambda settings, data: 1000.0)
    (tmp_path / "s.txt").write_text("".join(f"sentence number {at}\n" for at in range(40)))
    made = suggest(str(tmp_path / "s.txt"), 1.0, [])
    assert (made.settings.epochs, made.settings.schedule.warmup) == (1, 0)
    assert made.reasons[-1].startswith("1 epoch, about ")


def test_pairs_without_labels_are_evaluated_by_search(capsys, tmp_path):
    """The next commands hold `evaluate`, for images and their texts can be searched for."""
    import json

    from PIL import Image

    draw = np.random.default_rng(0)
    for at in range(16):
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / f"{at}.png")
    lines = [json.dumps({"image": f"{at}.png", "captions": [f"image {at}"]}) for at in range(16)]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n")
    words = [str(tmp_path / "p.jsonl"), "--set", "epochs=1", "--out", str(tmp_path / "run")]
    status, out, err = typed(capsys, "train", *words)
    assert status == 0, err
    assert "retrieval, next to chance" in out + err
    status, out, err = typed(capsys, "evaluate", str(tmp_path / "run"))
    assert status == 0, err
    assert "image to text" in out
