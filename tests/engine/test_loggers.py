"""Loggers receive what the history receives; resumed, they go on where the weights do."""

import io
import json
import sys
import time

import numpy as np
import pytest

from chiaroscuro.cli import main
from chiaroscuro.engine import (
    Logger,
    MLflow,
    StopTraining,
    TensorBoard,
    WandB,
    read_settings,
    train,
)
from chiaroscuro.errors import ChiaroError

SETS = [
    "epochs=2",
    "batch=8",
    "views.first=Jitter(noise=0.1)",
    "network.encoder=MLP(d_in=3, d=4)",
    "network.projector=Projector(d=4)",
    "schedule.warmup=0",
    "saving.record=1",
]


@pytest.fixture
def sets(tmp_path):
    x = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    return [*SETS, f"data.source={tmp_path / 'x.npz'}"]


class Kept(Logger):
    def __init__(self, fails=None):
        self.seen, self.fails = [], fails

    def begin(self, run, step):
        self.seen.append(("begin", run.folder.name, step))

    def record(self, record):
        self.seen.append(dict(record))
        if self.fails == record["step"]:
            raise ChiaroError("no more.")

    def end(self):
        self.seen.append("end")


def test_a_logger_receives_the_history(tmp_path, sets):
    kept = Kept()
    run = train(read_settings("simclr", sets), tmp_path / "run", [kept, lambda moment: {"a": 1.5}])
    first, *records, last = kept.seen
    assert first == ("begin", "run", 1)
    assert last == "end"
    assert records == run.history().records
    assert len(records) == 6 + 2
    assert [r["a"] for r in records if "epoch" in r] == [1.5, 1.5]


def test_no_logger_ends_a_training(tmp_path, sets):
    kept, said = Kept(fails=2), io.StringIO()
    run = train(read_settings("simclr", sets), tmp_path / "run", [kept], progress=said)
    records = run.history().records
    assert records[-1]["step"] == 6
    assert [r["failed_logger"] for r in records if "failed_logger" in r] == ["Kept: no more."]
    assert said.getvalue().count("A logger has failed") == 1
    assert [entry["step"] for entry in kept.seen[1:-1]] == [1, 2]
    assert kept.seen[-1] == "end"


def test_a_logger_ends_where_training_fails(tmp_path, sets):
    kept = Kept()

    def stop(moment):
        raise StopTraining

    train(read_settings("simclr", sets), tmp_path / "run", [kept, stop])
    assert kept.seen[-1] == "end"


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


@pytest.mark.extra("tensorboard")
def test_tensorboard_through_the_command_line(tmp_path, sets):
    out = tmp_path / "run"
    call = ["train", "simclr", "--out", str(out), "--log", "tensorboard", "--set", *sets]
    assert main(call) == 0
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    found = scalars(out / "tensorboard")
    for name in ("loss", "lr", "mean_loss", "images_per_second"):
        right = [(r["step"], pytest.approx(r[name])) for r in history if name in r]
        assert found[name] == right, name


@pytest.mark.extra("tensorboard")
def test_tensorboard_forgets_what_is_trained_again(tmp_path, sets):
    run = train(read_settings("simclr", [*sets, "epochs=1"]), tmp_path / "run")
    logger = TensorBoard(tmp_path / "events")
    for start, stop in ((1, 6), (4, 8)):  # killed after step 5, resumed from step 3
        logger.begin(run, start)
        for step in range(start, stop):
            logger.record({"step": step, "loss": float(start)})
        logger.end()
    found = scalars(tmp_path / "events")["loss"]
    assert found == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 4.0), (5, 4.0), (6, 4.0), (7, 4.0)]


@pytest.mark.extra("wandb")
def test_wandb_stays_on_the_machine(tmp_path, sets, monkeypatch):
    """Unless WANDB_MODE says otherwise, a run is a file, and nothing is sent."""
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    train(read_settings("simclr", sets), tmp_path / "run", [WandB("mine", name="one")])
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    words = [b"mine", b"one", b"loss", b"lr", b"mean_loss", b"Cosine(tau=0.5)"]
    end = time.monotonic() + 30
    while not all(word in file.read_bytes() for word in words):  # written by a process of its own
        assert time.monotonic() < end, [word for word in words if word not in file.read_bytes()]
        time.sleep(0.1)


@pytest.mark.extra("mlflow")
def test_mlflow_holds_the_settings_and_the_history(tmp_path, sets, monkeypatch):
    """A database on this machine unless MLFLOW_TRACKING_URI is set; a resumed run goes on."""
    import mlflow

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = tmp_path / "run"
    train(read_settings("simclr", [*sets, "epochs=1"]), out, [MLflow("mine", name="one")])
    client = mlflow.MlflowClient(f"sqlite:///{out / 'mlflow.db'}")
    (experiment,) = (e for e in client.search_experiments() if e.name == "mine")
    (first,) = client.search_runs([experiment.experiment_id])
    assert first.info.run_name == "one"
    assert first.info.status == "FINISHED"
    assert first.data.params["optimiser.name"] == "lars"
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    for name in ("loss", "lr", "mean_loss"):
        seen = [(m.step, m.value) for m in client.get_metric_history(first.info.run_id, name)]
        assert seen == [(r["step"], pytest.approx(r[name])) for r in history if name in r]
    logger = MLflow("mine", name="one")
    from chiaroscuro.artifacts import Run

    logger.begin(Run.open(out), 4)
    logger.record({"step": 4, "loss": 0.5})
    logger.end()
    assert len(client.search_runs([experiment.experiment_id])) == 1
    assert client.get_metric_history(first.info.run_id, "loss")[-1].step == 4


@pytest.mark.parametrize(
    ("logger", "library"),
    [(TensorBoard, "tensorboard"), (WandB, "wandb"), (MLflow, "mlflow")],
    ids=lambda x: str(x),
)
def test_a_missing_library_is_a_sentence(monkeypatch, logger, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ChiaroError, match=rf"pip install .*\[{library}\]'"):
        logger()
