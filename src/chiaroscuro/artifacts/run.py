"""A run folder: everything a training leaves, in plain files."""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chiaroscuro import figures
from chiaroscuro.artifacts.bounded import read_regular
from chiaroscuro.artifacts.files import (
    from_json,
    make_folder,
    newer,
    read_json,
    replace,
    require_own,
    sync_folder,
    to_json,
    writing,
)
from chiaroscuro.artifacts.toml import from_toml, to_toml
from chiaroscuro.display import html_table
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["RUN_FORMAT", "History", "Run", "environment", "record_of"]

RUN_FORMAT = 1
"""The `format` of `settings.toml`, `environment.json` and `diagnosis.json`."""

_PACKAGES = ("numpy", "torch", "safetensors", "scikit-learn", "scipy", "torchvision")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED")
_SETTINGS_BYTES = 16 << 20
_OURS = {"environment.json", "checkpoints", "embeddings", "writer.lock"}
_OURS |= {"objects.json", "initial", "scaling.json", "tokenizer", "transformers"}
_DESCRIBED: dict[str, type] = dict.fromkeys(("path", "text", "sha256", "python"), str)
_DESCRIBED |= dict.fromkeys(("rows", "tensors", "parameters", "d"), int)
_DESCRIBED |= dict.fromkeys(("values", "code"), dict)
_GIVEN = "given"
"""Key of `objects.json`: which networks were given as modules."""
_WRITTEN = (
    *("history.jsonl", "checkpoints", "embeddings", "initial", "moments"),
    *("tokenizer", "transformers"),
)


def require_free(folder: Path) -> None:
    """Refuse a folder that a new run cannot have: one with a run, its remains, or other files.

    What an interrupted `Run.create` leaves is no hindrance; it has neither history nor checkpoints.
    """
    try:
        there = {p.name for p in folder.iterdir()} if folder.exists() else set()
        inside = [p for name in ("checkpoints", "embeddings") for p in _entries(folder / name)]
    except OSError as error:
        raise ChiaroError(
            f"`{folder}` cannot be a run folder: {error.strerror or error}."
        ) from None
    need(
        "settings.toml" not in there,
        lambda: (
            f"`{folder}` holds a run already, with {len(there)} entries; resume it, or choose "
            "another folder."
        ),
    )
    others = [name for name in there - _OURS if not name.endswith(".tmp")]
    others = sorted([*others, *(f"{p.parent.name}/{p.name}" for p in inside)])
    need(
        not others,
        lambda: (
            f"A new run needs an empty folder; `{folder}` has {len(others)} other entries, the "
            f"first is `{others[0]}`."
        ),
    )


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


@dataclass(frozen=True)
class History:
    """Records of a `history.jsonl`, and a message for each line that could not be read."""

    records: list[dict[str, Any]]
    problems: list[str]

    def plot(self, ax: Any = None) -> Any:
        """Draw the loss over steps; needs `chiaroscuro[plots]`.

        Args:
            ax: matplotlib axes; None makes new ones.
        """
        losses = [(r["step"], r["loss"]) for r in self.records if "loss" in r]
        means = [(r["step"], r["mean_loss"]) for r in self.records if "mean_loss" in r]
        ax = figures.axes(ax)
        for at, (name, points) in enumerate((("loss", losses), ("mean over the epoch", means))):
            if points:
                ax.plot(*zip(*points, strict=True), color=figures.COLOURS[at], label=name)
        ax.set_xlabel("step")
        ax.set_ylabel("loss")
        if losses or means:
            ax.legend()
        return ax

    def html(self, settings: Mapping[str, Any], folder: Path | None) -> str:
        """Return a table for notebooks: what was trained, and how far.

        Args:
            settings: of the run.
            folder: of the run; None for one in memory.
        """
        last: dict[str, Any] = next(
            (r for r in reversed(self.records) if "mean_loss" in r or "loss" in r), {}
        )
        loss = last.get("mean_loss", last.get("loss"))
        rows = [
            ("folder", folder or "none: in memory"),
            ("data", settings.get("data", {}).get("source")),
            ("encoder", settings.get("network", {}).get("encoder")),
            ("objective", settings.get("objective")),
            ("steps", max((r["step"] for r in self.records if "step" in r), default=0)),
            ("last loss", f"{loss:.4f}" if isinstance(loss, float) else loss),
        ]
        return html_table("Run", [row for row in rows if row[1] is not None])


def record_of(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the record of a line of a history, or nothing and what is wrong with it."""
    try:
        record = from_json(line)
    except (ValueError, RecursionError) as error:
        return None, str(error)
    return (record, "") if isinstance(record, dict) else (None, "not an object")


@dataclass(frozen=True)
class Run:
    """Folder of one training run.

        settings.toml     all settings, including defaults
        environment.json  versions and hardware
        history.jsonl     losses and measures, one JSON object per line
        checkpoints/      see `chiaroscuro.artifacts.checkpoints`
        embeddings/       files of `Embeddings`
        skipped.json      files of the data that could not be read, if any
        objects.json      what is known of objects that have no notation, and which networks were
                          given as modules, if any were
        tokenizer/        the vocabulary that texts were read by, if it was one of another library
        scaling.json      mean and standard deviation of the features of a table, if it was one
        transformers/     the configurations of encoders of that library, if there are any
        initial/          the weights before the first step, where modules or files of weights gave
                          them
        evaluation.json   accuracies on held-out rows
        diagnosis.json    measures and findings
        report.html       the page

    `Run.create` creates one, `Run.open` opens an existing one.

    Args:
        folder: path of the folder.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Run.create(folder, {"seed": 0, "optimiser": {"lr": 0.005}})
        ...     run.append({"step": 1, "loss": 4.8})
        ...     Run.open(folder).settings(), Run.open(folder).history().records
        ({'seed': 0, 'optimiser': {'lr': 0.005}}, [{'step': 1, 'loss': 4.8}])
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))

    # ---- making and finding ----

    def require_own(self) -> None:
        """Refuse a run with a link under a name that training or a report would write through."""
        require_own(self.folder, _WRITTEN)

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike,
        settings: Mapping[str, Any],
        extra: Mapping[str, Any] | None = None,
    ) -> Run:
        """Make a run in a folder that is new, empty, or left over from an unfinished `create`.

        Args:
            folder: made if need be, with those above it.
            settings: nested dictionaries, as `settings.toml` will hold them.
            extra: facts about the machine to add to `environment.json`, such as torch's build.
        """
        run = cls(Path(folder))
        need("format" not in settings, "`format` is not a setting: the run folder writes its own.")
        text = to_toml({"format": RUN_FORMAT, **settings})
        require_free(run.folder)
        with writing(run.folder):
            for part in (run.folder, run.checkpoints, run.folder / "embeddings"):
                make_folder(part)
        facts = {"format": RUN_FORMAT, **environment(), **(extra or {})}
        _write_text(run.folder / "environment.json", to_json(facts, indent=2) + "\n")
        # the last file: with it the folder is a run
        _write_text(run.folder / "settings.toml", text)
        return run

    @classmethod
    def open(cls, folder: str | os.PathLike) -> Run:
        """Return the run in a folder, after a look at its `settings.toml`."""
        run = cls(Path(folder))
        need(run.folder.is_dir(), lambda: f"There is no folder `{folder}`.")
        need(
            (run.folder / "settings.toml").is_file(),
            lambda: f"`{folder}` is not a run: it has no `settings.toml`.",
        )
        run.settings()
        return run

    # ---- what is in it ----

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def report(self) -> Path:
        """Where the page goes."""
        return self.folder / "report.html"

    def embeddings(self, name: str = "test") -> Path:
        """Return where the embeddings of that name go: `embeddings/<name>.npz`."""
        need(
            bool(name) and name == Path(name).name and not name.startswith("."),
            lambda: f"Embeddings need a plain name such as `test`; received `{name}`.",
        )
        return self.folder / "embeddings" / f"{name}.npz"

    def settings(self) -> dict[str, Any]:
        """Return the resolved settings, from `settings.toml`."""
        path = self.folder / "settings.toml"
        try:
            text = read_regular(path, _SETTINGS_BYTES).decode()
        except UnicodeDecodeError as error:
            raise InputError(f"`{path}` is not TOML: {error}.") from None
        table = from_toml(text, f"`{path}`")
        newer(f"`{path}`", table.pop("format", None), RUN_FORMAT)
        return table

    def environment(self) -> dict[str, Any]:
        """Return where it ran, from `environment.json`."""
        return self._json("environment.json")

    def diagnosis(self) -> dict[str, Any] | None:
        """Return the diagnosis, from `diagnosis.json`; None if there is none yet."""
        there = (self.folder / "diagnosis.json").is_file()
        return self._json("diagnosis.json") if there else None

    def write_diagnosis(self, diagnosis: Mapping[str, Any]) -> Path:
        """Write `diagnosis.json`, whole or not at all, with its `format`."""
        path = self.folder / "diagnosis.json"
        _write_text(path, to_json({"format": RUN_FORMAT, **diagnosis}, indent=2) + "\n")
        return path

    def evaluation(self) -> dict[str, Any] | None:
        """Return the accuracies in `evaluation.json`; None if nothing was evaluated yet."""
        there = (self.folder / "evaluation.json").is_file()
        return self._json("evaluation.json") if there else None

    def write_evaluation(self, evaluation: Mapping[str, Any]) -> Path:
        """Write `evaluation.json`, whole or not at all, with its `format`."""
        path = self.folder / "evaluation.json"
        _write_text(path, to_json({"format": RUN_FORMAT, **evaluation}, indent=2) + "\n")
        return path

    def objects(self) -> dict[str, Any]:
        """Return what is known of objects without a notation, from `objects.json`, by name."""
        path = self.folder / "objects.json"
        objects = self._json("objects.json") if path.is_file() else {}
        objects.pop(_GIVEN, None)
        for name, known in objects.items():
            wrong = None if isinstance(known, dict) else name
            for key, kind in _DESCRIBED.items() if isinstance(known, dict) else ():
                value = known.get(key)
                absent = key not in known or (value is None and kind is int)
                fits = absent or (isinstance(value, kind) and not isinstance(value, bool))
                if isinstance(value, dict):
                    fits = fits and all(isinstance(one, str) for one in value.values())
                wrong = wrong if fits else f"{name}.{key}"
            need(
                wrong is None,
                lambda wrong=wrong: f"`{path}` does not describe an object as we do, at `{wrong}`.",
            )
        return objects

    def given_networks(self) -> list[str] | None:
        """Return which networks were given as modules, by name, from `objects.json`.

        None where it is not recorded: none was given, or the run is of an older version.
        """
        path = self.folder / "objects.json"
        known = self._json("objects.json").get(_GIVEN) if path.is_file() else None
        if known is None:
            return None
        need(
            isinstance(known, dict) and all(isinstance(one, str) for one in known.values()),
            lambda: f"`{path}` does not describe objects as we do, at `{_GIVEN}`.",
        )
        return list(known)

    def write_objects(self, objects: Mapping[str, Any], given: Sequence[str] = ()) -> Path:
        """Write `objects.json`, whole or not at all, with its `format`.

        Args:
            objects: what is known of objects without a notation, by name.
            given: names of the networks that were given as modules.
        """
        path = self.folder / "objects.json"
        record = {_GIVEN: dict.fromkeys(given, "module")} if given else {}
        _write_text(path, to_json({"format": RUN_FORMAT, **record, **objects}, indent=2) + "\n")
        return path

    def scaling(self) -> dict[str, Any] | None:
        """Return `names`, `mean` and `std` of the features of a table; None without a table."""
        there = (self.folder / "scaling.json").is_file()
        return self._json("scaling.json") if there else None

    def write_scaling(self, scaling: Mapping[str, Any]) -> Path:
        """Write `scaling.json`, whole or not at all, with its `format`."""
        path = self.folder / "scaling.json"
        _write_text(path, to_json({"format": RUN_FORMAT, **scaling}, indent=2) + "\n")
        return path

    @property
    def tokenizer(self) -> Path | None:
        """The folder of the vocabulary that its texts were read by; None where it has none."""
        folder = self.folder / "tokenizer"
        return folder if (folder / "tokenizer.json").is_file() else None

    def write_tokenizer(self, files: Mapping[str, bytes]) -> None:
        """Write the files of a vocabulary into `tokenizer/`.

        Args:
            files: contents by name.
        """
        self._write_files(self.folder / "tokenizer", files)

    @property
    def configurations(self) -> Path:
        """The folder of the configurations of encoders of transformers; it may not be there."""
        return self.folder / "transformers"

    def write_configuration(self, key: str, text: str) -> None:
        """Write the configuration of an encoder of transformers into `transformers/KEY`.

        Args:
            key: a file name.
            text: of `config.json`.
        """
        make_folder(self.configurations)
        self._write_files(self.configurations / key, {"config.json": text.encode()})

    def _write_files(self, folder: Path, files: Mapping[str, bytes]) -> None:
        make_folder(folder)
        for name, content in files.items():
            replace(folder / name, lambda file, content=content: file.write(content))

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write `settings.toml` again, whole: for a run that goes on with others."""
        _write_text(self.folder / "settings.toml", to_toml({"format": RUN_FORMAT, **settings}))

    def write_skipped(self, skipped: Sequence[Mapping[str, str]]) -> Path:
        """Write `skipped.json`: the `path` of each file of the data that was left out, and why."""
        path = self.folder / "skipped.json"
        _write_text(path, to_json(list(skipped), indent=2) + "\n")
        return path

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        table = read_json(path)
        need(isinstance(table, dict), lambda: f"`{path}` needs an object; it holds another value.")
        newer(f"`{path}`", table.get("format"), RUN_FORMAT)
        return {key: value for key, value in table.items() if key != "format"}

    def save_pretrained(self, folder: str | os.PathLike, licence: str = "") -> Path:
        """Write the trained network so that `chiaroscuro.load_pretrained` reads it without the run.

        Args:
            folder: new or empty.
            licence: of the weights, for the model card.
        """
        # looked up when called: a run folder can be read where torch is not installed
        exporting = importlib.import_module("chiaroscuro.exporting")
        return exporting.save_pretrained(self, folder, licence)

    # ---- in a notebook ----

    def plot(self, ax: Any = None) -> Any:
        """Draw the loss over steps; needs `chiaroscuro[plots]`.

        Args:
            ax: matplotlib axes; None makes new ones.
        """
        return self.history().plot(ax)

    def _repr_html_(self) -> str:
        return self.history().html(self.settings(), self.folder)

    # ---- history ----

    def append(self, record: Mapping[str, Any], durable: bool = True) -> None:
        """Add one line to `history.jsonl`.

        A line is one write. Once this returns, the record survives `kill -9`; if `durable` it was
        also fsynced and survives a power cut. A crash inside can tear the last line only, which
        `history` then leaves out and the next `append` removes.

        Args:
            record: a dictionary; NaN and infinity are written as their names in quotes, since JSON
                has no such numbers, and read back as numbers.
            durable: whether to wait for the disk.
        """
        path = self.folder / "history.jsonl"
        line = (to_json(record) + "\n").encode()
        with writing(path, "The records before it are intact."):
            new = not path.exists()
            with path.open("ab+", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                whole = _whole(file, end)
                if whole < end:
                    file.truncate(whole)
                try:
                    written = 0
                    while written < len(line):  # once, unless the disk is filling up
                        written += file.write(line[written:])
                except OSError:
                    file.truncate(whole)  # half a line
                    raise
                if durable:
                    os.fsync(file.fileno())
            if durable and new:
                sync_folder(path.parent)

    def sync_history(self) -> None:
        """Make all records durable: a checkpoint must not outlive the records of its steps."""
        path = self.folder / "history.jsonl"
        if path.exists():
            with writing(path, "The records before it are intact."):
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
                sync_folder(path.parent)

    def history(self) -> History:
        """Return all records, and what was wrong with lines that are none."""
        path = self.folder / "history.jsonl"
        if not path.exists():
            return History([], [])
        lines = read_regular(path).split(b"\n")
        torn = lines.pop()
        records, problems = [], []
        for number, line in enumerate(lines, start=1):
            record, wrong = record_of(line)
            if record is None:
                problems.append(f"`{path.name}` line {number} is left out: {wrong}.")
            else:
                records.append(record)
        if torn:
            problems.append(
                f"`{path.name}` ends in {len(torn)} bytes without a line end, torn by a crash; "
                f"they are left out, {len(records)} records are whole."
            )
        return History(records, problems)

    def keep_history_aside(self) -> None:
        """Rename `history.jsonl`, so that a run which begins again loses no record."""
        path = self.folder / "history.jsonl"
        names = (f"history-before-restart-{n}.jsonl" for n in itertools.count(1))
        aside = next(place for name in names if not (place := self.folder / name).exists())
        with writing(path):
            path.rename(aside)
            sync_folder(self.folder)

    def rewind(self, keep: Callable[[dict[str, Any]], bool]) -> int:
        """Drop the records for which `keep` is false, as when a run resumes from before them.

        The file is replaced whole. Returns how many were dropped.

        Args:
            keep: for example `lambda record: record["step"] <= 1200`.
        """
        records = self.history().records
        kept = [record for record in records if keep(record)]
        if len(kept) < len(records):
            text = "".join(to_json(record) + "\n" for record in kept)
            _write_text(self.folder / "history.jsonl", text)
        return len(records) - len(kept)


def environment() -> dict[str, Any]:
    """Return versions, machine, threads, command line and time, as needed to repeat a run.

    Neither user nor host is named.

    Example:
        >>> sorted(environment())
        ['chiaroscuro', 'command', 'cpus', 'machine', 'packages', 'platform', 'python', 'started',
        'variables']
    """
    packages: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "chiaroscuro": getattr(sys.modules.get("chiaroscuro"), "__version__", None),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "packages": packages,
        "variables": {name: os.environ[name] for name in _THREADS if name in os.environ},
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv else [],
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _whole(file: Any, end: int) -> int:
    """Return where the last complete line ends."""
    at = end
    while at:
        start = max(0, at - 4096)
        file.seek(start)
        newline = file.read(at - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        at = start
    return 0


def _write_text(path: Path, text: str) -> None:
    def write(file: Any) -> None:
        file.write(text.encode())

    replace(path, write)
