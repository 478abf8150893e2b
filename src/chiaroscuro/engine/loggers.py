"""Show the history of a run in TensorBoard, Weights & Biases or MLflow; the packages are extras."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts import Run
from chiaroscuro.data.extras import bring

__all__ = ["Logger", "MLflow", "TensorBoard", "WandB"]


class Logger(ABC):
    """Receives every record of a run's history, on the first rank (abstract).

    Handed to `train` among its callbacks. A record has a `step`, and either `loss` and `lr` of that
    step or, at the end of an epoch, `epoch`, `mean_loss` and what was measured.
    """

    @abstractmethod
    def begin(self, run: Run, step: int) -> None:
        """Before the first record, that of `step`: later steps logged by an earlier process are
        void."""

    @abstractmethod
    def record(self, record: Mapping[str, Any]) -> None:
        """A record, as it went into the history."""

    @abstractmethod
    def end(self) -> None:
        """After the last, also where training failed."""


class TensorBoard(Logger):
    """Write event files for TensorBoard: `pip install 'chiaroscuro[tensorboard]'`.

    Args:
        folder: folder of the event files; None is `tensorboard` in the run folder.
    """

    def __init__(self, folder: str | os.PathLike | None = None):
        bring("tensorboard", "Logging to TensorBoard", "'chiaroscuro[tensorboard]'")
        self.folder = folder
        self.writer: Any = None

    def begin(self, run: Run, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(self.folder or run.folder / "tensorboard")
        self.writer = SummaryWriter(folder, purge_step=step)

    def record(self, record: Mapping[str, Any]) -> None:
        for name, value in _numbers(record).items():
            self.writer.add_scalar(name, value, record["step"])
        if "epoch" in record:
            self.writer.flush()

    def end(self) -> None:
        self.writer.close()


class WandB(Logger):
    """Log to a run of Weights & Biases: `pip install 'chiaroscuro[wandb]'`.

    Nothing leaves the machine unless it is asked for: `wandb sync` uploads what was logged, or the
    environment variable WANDB_MODE says "online".

    Args:
        project: the run's project there.
        name: name of the run; None is that of the run folder.
        folder: folder of its files; None is `wandb` in the run folder.
    """

    def __init__(
        self,
        project: str = "chiaroscuro",
        name: str | None = None,
        folder: str | os.PathLike | None = None,
    ):
        self.library = bring("wandb", "Logging to W&B", "'chiaroscuro[wandb]'")
        self.project, self.name, self.folder = project, name, folder
        self.run: Any = None

    def begin(self, run: Run, step: int) -> None:
        self.run = self.library.init(
            project=self.project,
            name=self.name or run.folder.resolve().name,
            dir=str(self.folder or run.folder),
            config=run.settings(),
            mode=os.environ.get("WANDB_MODE", "offline"),
        )

    def record(self, record: Mapping[str, Any]) -> None:
        self.run.log(_numbers(record), step=record["step"])

    def end(self) -> None:
        self.run.finish()


class MLflow(Logger):
    """Log to an experiment of MLflow: `pip install 'chiaroscuro[mlflow]'`.

    A database in the run folder, which `mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db`
    shows, unless the environment variable MLFLOW_TRACKING_URI names a server. A resumed training
    goes on in the same run there.

    Args:
        experiment: the run's experiment there.
        name: name of the run; None is that of the run folder.
        folder: folder of its database, `mlflow.db`, and its files; None is the run folder.
    """

    def __init__(
        self,
        experiment: str = "chiaroscuro",
        name: str | None = None,
        folder: str | os.PathLike | None = None,
    ):
        self.library = bring("mlflow", "Logging to MLflow", "'chiaroscuro[mlflow]'")
        self.experiment, self.name, self.folder = experiment, name, folder
        self.client: Any = None
        self.run_id = ""

    def begin(self, run: Run, step: int) -> None:
        folder = Path(self.folder or run.folder).resolve()
        own = f"sqlite:///{folder / 'mlflow.db'}"  # a store of plain files is no longer served
        self.client = self.library.MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", own))
        known = self.client.get_experiment_by_name(self.experiment)
        files = None if "MLFLOW_TRACKING_URI" in os.environ else (folder / "mlruns").as_uri()
        place = (
            known.experiment_id
            if known
            else self.client.create_experiment(self.experiment, artifact_location=files)
        )
        same = f"tags.chiaroscuro_run = '{run.folder.resolve()}'"
        earlier = self.client.search_runs([place], same) if step > 1 else []
        if earlier:
            self.run_id = earlier[0].info.run_id
            return
        tags = {"chiaroscuro_run": str(run.folder.resolve())}
        name = self.name or run.folder.resolve().name
        self.run_id = self.client.create_run(place, tags=tags, run_name=name).info.run_id
        for key, value in _flat(run.settings()):
            self.client.log_param(self.run_id, key, value)

    def record(self, record: Mapping[str, Any]) -> None:
        for name, value in _numbers(record).items():
            self.client.log_metric(self.run_id, name, value, step=record["step"])

    def end(self) -> None:
        self.client.set_terminated(self.run_id)


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    plain = {name: value for name, value in record.items() if name != "step"}
    return {name: float(x) for name, x in plain.items() if isinstance(x, int | float)}
