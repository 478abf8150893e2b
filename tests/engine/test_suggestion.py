"""What is suggested for data: the kind, the hold-out, the network, the reasons."""

import json

import numpy as np
import pytest
import torch

from chiaroscuro.data import absolute_source, as_call, is_source, open_data
from chiaroscuro.engine import Settings, build, suggest
from chiaroscuro.engine.batches import Pairs, training_part
from chiaroscuro.engine.suggestion import STEPS, _batch, kind_of
from chiaroscuro.errors import InputError

DRAW = np.random.default_rng(0)
TIME = np.linspace(0, 1, 100)
WAVES = np.stack([np.sin(2 * np.pi * f * TIME) for f in DRAW.uniform(1, 9, 40)]).astype("f4")


def files(folder):
    from PIL import Image

    for at in range(24):
        path = folder / "photos" / "ab"[at % 2]
        path.mkdir(parents=True, exist_ok=True)
        size = (20 + at % 3, 24, 3)  # sizes differ
        Image.fromarray(DRAW.integers(0, 255, size, np.uint8)).save(path / f"{at}.png")
    np.savez(
        folder / "table.npz", x=DRAW.normal(size=(40, 6)).astype("f4"), labels=np.arange(40) % 2
    )
    np.savez(folder / "recordings.npz", x=np.stack([WAVES, WAVES], axis=1))
    np.savez(folder / "waves.npz", x=WAVES)
    np.savez(folder / "grey.npz", images=DRAW.integers(0, 255, (30, 28, 28), np.uint8))
    bands = DRAW.integers(0, 65535, (30, 16, 16, 5), np.uint16)
    np.savez(folder / "bands.npz", images=bands)
    (folder / "sentences.txt").write_text("".join(f"sentence number {i}\n" for i in range(40)))
    pairs = [{"captions": [f"a {i}", f"one {i}"]} for i in range(40)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in pairs))
    shown = [{"image": f"photos/{'ab'[i % 2]}/{i}.png", "text": f"image {i}"} for i in range(24)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in shown))


KINDS = {
    "photos": "images",
    "grey.npz": "images",
    "bands.npz": "images",
    "table.npz": "table",
    "recordings.npz": "series",
    "waves.npz": "series",
    "sentences.txt": "text",
    "texts.jsonl": "pairs",
    "pairs.jsonl": "pairs",
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_known_held_out_and_takes_a_step(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    files(tmp_path)
    made = suggest(name, overrides=["epochs=1"])
    assert made.kind == KINDS[name]
    settings = made.settings
    assert str(tmp_path) in settings.data.source  # absolute
    data = open_data(settings.data.source)
    assert len(data.part("test")) == round(0.2 * len(data)) or data.labels is not None
    part = training_part(settings, data)
    assert len(part) >= STEPS * settings.batch
    x1, x2 = Pairs.of(settings, part)(np.arange(settings.batch), epoch=0)
    networks = build(settings.network, 0)
    loss = settings.make_objective()(networks(x1, side=0), networks(x2, side=1))
    assert torch.isfinite(loss)
    assert Settings.of(settings.table()) == settings
    assert "held out" in " ".join(made.reasons)


def test_minutes_become_epochs_and_what_is_set_is_not_chosen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files(tmp_path)
    long, short = (suggest("table.npz", minutes=m).settings.epochs for m in (0.5, 1e-9))
    assert long > short == 1
    made = suggest("table.npz", overrides=["batch=16", "epochs=7", "optimiser.lr=0.5"]).settings
    assert (made.batch, made.epochs, made.optimiser.lr) == (16, 7, 0.5)
    with pytest.raises(InputError, match="-1"):
        suggest("table.npz", minutes=-1)


def test_columns_of_a_table_are_standardised_by_the_training_side(tmp_path):
    x = DRAW.normal(size=(200, 3)) * [1, 100, 0] + [5, 0, 7]  # the last column is constant
    np.savez(tmp_path / "x.npz", x=x)
    settings = suggest(str(tmp_path / "x.npz"), overrides=["epochs=1"]).settings
    part = open_data(settings.data.source).part("train").column("x")
    view, _ = settings.views.objects()
    plain = view.plain(torch.from_numpy(part))
    assert torch.allclose(plain.mean(0), torch.zeros(3, dtype=plain.dtype), atol=1e-4)
    assert torch.allclose(
        plain.std(0, correction=0)[:2], torch.ones(2, dtype=plain.dtype), atol=1e-4
    )


def test_a_matrix_is_a_series_only_if_neighbours_are_alike():
    noise = DRAW.normal(size=(40, 100))
    assert kind_of(open_data({"x": noise}))[0] == "table"
    assert kind_of(open_data({"x": np.cumsum(noise, axis=1)}))[0] == "series"
    assert kind_of(open_data({"x": np.cumsum(noise, axis=1)[:, :20]}))[0] == "table"  # short
    with pytest.raises(InputError, match=r"\(40, 100, 2\).*transpose\(0, 2, 1\)"):
        kind_of(open_data({"x": noise[:, :, None].repeat(2, axis=2)}))
    with pytest.raises(InputError, match=r"\(40, 2, 5, 10\)"):
        kind_of(open_data({"x": noise.reshape(40, 2, 5, 10)}))


def test_missing_numbers_are_counted(tmp_path):
    x = DRAW.normal(size=(50, 3))
    x[3, 1] = x[4, 2] = np.nan
    np.savez(tmp_path / "x.npz", x=x)
    with pytest.raises(InputError, match="numbers that are missing"):
        suggest(str(tmp_path / "x.npz"))


@pytest.mark.parametrize("n", [4, 9, 16, 100, 1000, 10**6])
def test_the_batch_leaves_an_epoch_several_steps(n):
    assert 2 <= _batch(n) <= 128
    assert n // _batch(n) >= min(STEPS, n // 2)
    with pytest.raises(InputError, match="there are 3"):
        _batch(3)


def test_sources_become_calls_with_absolute_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files(tmp_path)
    assert as_call("photos", test=0.2) == f"folder('{tmp_path}/photos', test=0.2)"
    assert as_call("table.npz") == f"arrays('{tmp_path}/table.npz')"
    assert as_call("arrays('table.npz')", test=None) == f"arrays('{tmp_path}/table.npz')"
    assert as_call("digits", size=16) == "digits(size=16)"
    assert absolute_source("pairs('pairs.jsonl', test=0.5)").startswith(f"pairs('{tmp_path}")
    assert [is_source(s) for s in ("photos", "nope", "nope.csv", "digits")] == [1, 0, 0, 1]
    (tmp_path / "a.xyz").touch()
    with pytest.raises(InputError, match=r"a\.xyz.*\.npz"):
        as_call("a.xyz")


def test_only_texts_go_without_a_view_to_models_of_transformers(tmp_path):
    """Two views of a text differ by dropout; two of an image would be the same image."""
    files(tmp_path)
    asked = ["network.encoder=from_transformers('model')", "epochs=2"]
    assert suggest(str(tmp_path / "sentences.txt"), overrides=asked).settings.views.first == ""
    for name in ("photos", "grey.npz", "pairs.jsonl"):
        assert "SimCLR" in suggest(str(tmp_path / name), overrides=asked).settings.views.first
