"""What is said and kept while training goes on: monitors that fail, files that cannot be read."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from chiaroscuro.artifacts import checkpoints
from chiaroscuro.cli import main
from chiaroscuro.engine import StopTraining, read_settings, train
from chiaroscuro.engine.fitting import preserved_random_state
from chiaroscuro.errors import ChiaroError, InputError

SMALL = [
    "epochs=3",
    "batch=16",
    "views.first=Jitter(noise=0.1)",
    "network.encoder=MLP(d_in=5, d=8)",
    "network.projector=Projector(d=4)",
    "schedule.warmup=0",
]


def small(tmp_path, *more, **arrays):
    x = np.random.default_rng(0).normal(size=(32, 5)).astype(np.float32)
    np.savez(tmp_path / "x.npz", **({"x": x} | arrays))
    return read_settings("simclr", [*SMALL, f"data.source={tmp_path / 'x.npz'}", *more])


# ---- monitors ----


def test_a_monitor_that_cannot_measure_is_said_once(tmp_path):
    said, seen = io.StringIO(), []

    def unable(moment):
        seen.append(moment.epoch)
        raise ChiaroError(f"no measure of epoch {moment.epoch}.")

    settings = small(tmp_path)
    run = train(settings, tmp_path / "run", [unable, lambda moment: {"other": 1.0}], progress=said)
    assert seen == [0, 1, 2]
    assert said.getvalue().count("A monitor cannot measure") == 1
    assert "training goes on: no measure of epoch 0." in said.getvalue()
    records = [r for r in run.history().records if "epoch" in r]
    assert [r["other"] for r in records] == [1.0] * 3
    assert [r.get("failed_monitor") for r in records] == ["no measure of epoch 0.", None, None]


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError, OSError])
def test_no_error_of_a_monitor_ends_a_training(tmp_path, error):
    def broken(moment):
        raise error("of a monitor")

    run = train(small(tmp_path), tmp_path / "run", [broken])
    ends = [r for r in run.history().records if "epoch" in r]
    assert [r.get("failed_monitor") for r in ends] == [
        f"{error.__name__}: of a monitor",
        None,
        None,
    ]


RETURNED = [{"a": object()}, {"a": "x"}, {3: 1.0}, {"step": 9}, {"\ud800": 1.0}, {"a\n": 1}, [1]]


def test_nothing_that_a_monitor_returns_ends_a_training(tmp_path):
    def bad(value):
        return lambda moment: value

    def unspeakable(moment):
        raise ValueError("\ud800\n")

    monitors = [*map(bad, RETURNED), unspeakable, bad({"b": np.float32(0.5), "c": np.int64(3)})]
    run = train(small(tmp_path), tmp_path / "run", monitors)
    ends = [r for r in run.history().records if "epoch" in r]
    assert [(r["step"], r["b"], r["c"]) for r in ends] == [(2, 0.5, 3), (4, 0.5, 3), (6, 0.5, 3)]
    assert ends[0]["failed_monitor"].count("A monitor needs") == len(RETURNED)
    assert r"ValueError: \ud800" in ends[0]["failed_monitor"]
    assert "failed_monitor" not in ends[1]


def test_a_monitor_that_stops_costs_no_epoch(tmp_path):
    """It is saved and recorded, `train` returns, and resumed the weights are those."""

    def stops(moment):
        if moment.epoch == 1:
            raise StopTraining("enough of it")

    measure, said = (lambda moment: {"measure": moment.epoch}), io.StringIO()
    settings = small(tmp_path, "saving.every=3")
    run = train(settings, tmp_path / "run", [measure, stops], progress=said)
    assert "stops the training after step 4: enough of it" in said.getvalue()
    assert run.history().records[-1]["stopped"] == "enough of it"
    assert checkpoints.latest_good(run.checkpoints).checkpoint.step == 4
    train(settings, tmp_path / "run", [measure], resume=True)
    whole = train(settings, tmp_path / "whole", [measure])
    kept = ("step", "epoch", "mean_loss", "measure")
    one, two = (
        [[r[k] for k in kept] for r in run.history().records if "epoch" in r]
        for run in (run, whole)
    )
    assert one == two
    a, b = (checkpoints.latest_good(run.checkpoints).checkpoint.arrays for run in (run, whole))
    assert all(a[key].tobytes() == b[key].tobytes() for key in a)


def test_random_states_are_kept_on_every_device(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.random, "fork_rng", lambda **options: asked.append(options))
    preserved_random_state(torch.device("cpu"))
    preserved_random_state(torch.device("cuda", 1))
    assert asked == [{"devices": []}, {"devices": [1], "device_type": "cuda"}]


# ---- what is said before the first step ----


@pytest.mark.parametrize(("warmup", "times"), [(2, 0), (3, 1), (10, 1)])
def test_a_warmup_without_an_end_is_said(tmp_path, warmup, times):
    said = io.StringIO()
    train(small(tmp_path, f"schedule.warmup={warmup}"), tmp_path / "run", progress=said)
    assert said.getvalue().count("no shorter than the training of 3") == times


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    for side in ("train", "test"):
        for i in range(24):
            path = tmp_path / "some" / side / "ab"[i % 2] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    (tmp_path / "some" / "train" / "a" / "bad.png").write_bytes(b"nonsense")
    (tmp_path / "some" / "train" / "b" / "cut.png").write_bytes(path.read_bytes()[:60])
    return tmp_path / "some"


def test_files_that_cannot_be_read_are_said_and_listed(tmp_path, pictures, capsys):
    out = str(tmp_path / "run")
    sets = [
        *("epochs=1", "batch=8", "views.first=SimCLR(size=8)", "schedule.warmup=0"),
        *("network.encoder=MLP(d_in=192, d=8)", "network.projector=Projector(d=4)"),
        f"data.source={pictures}",
    ]
    assert main(["train", "simclr", "--set", *sets, "--out", out]) == 0
    said = capsys.readouterr().err
    assert "2 files of `some` cannot be read and are left out: train/a/bad.png" in said
    listed = json.loads((tmp_path / "run" / "skipped.json").read_text())
    assert [one["path"] for one in listed] == ["train/a/bad.png", "train/b/cut.png"]
    assert main(["embed", out, "--out", str(tmp_path / "e.npz")]) == 0
    assert "2 files of `some` cannot be read" in capsys.readouterr().err
    assert main(["evaluate", out, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["protocol"]["skipped"].startswith("2 files of `some` cannot be read")


# ---- rows that are not finite ----


@pytest.mark.parametrize("workers", [0, 1])
def test_a_row_with_nan_is_named(tmp_path, workers):
    x = np.zeros((32, 5), np.float32)
    x[13, 2] = np.nan
    settings = small(tmp_path, f"data.workers={workers}", x=x, ids=np.arange(32) + 100)
    with pytest.raises(InputError, match=r"1 in a batch of 16 .* the first is row 13 \(`113`\)"):
        train(settings, tmp_path / "run")


def test_divergence_is_status_1(tmp_path, capsys):
    small(tmp_path)
    sets = [*SMALL, f"data.source={tmp_path / 'x.npz'}", "optimiser.name=sgd", "optimiser.lr=1e30"]
    assert main(["train", "simclr", "--set", *sets, "--out", str(tmp_path / "run")]) == 1
    assert "Lower `optimiser.lr` (1e+30)" in capsys.readouterr().err


def test_whole_numbers_for_jitter_are_told_what_to_do(tmp_path):
    settings = small(tmp_path, x=np.zeros((32, 5), np.int64))
    with pytest.raises(InputError, match=r"`Jitter` needs floats; .* `x.astype\(np.float32\)`"):
        train(settings, tmp_path / "run")
