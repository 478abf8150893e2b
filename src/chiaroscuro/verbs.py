"""The public functions that take a run or embeddings: diagnose, evaluate, report."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chiaroscuro.artifacts import Embeddings, Run
from chiaroscuro.artifacts.logs import read_history, read_settings
from chiaroscuro.errors import ChiaroError, InputError, need

__all__ = ["compare", "complete_run", "diagnose", "evaluate", "is_run", "report"]

ROWS = 2048
"""Of a run's data that a diagnosis looks at, at most."""


def diagnose(
    subject: Any,
    objective: Any = None,
    batch: int | None = None,
    rows: int = 50_000,
    seed: int = 0,
    task: Any = None,
    *,
    names: Mapping[str, str] | None = None,
    labels: Any = None,
    pairs: Any = None,
    against: Any = None,
    metric: str = "cosine",
    history: Any = None,
    settings: Any = None,
    progress: Any = None,
    data: Any = None,
    encoder: Any = None,
    second_encoder: Any = None,
    projector: Any = None,
    predictor: Any = None,
    view: Any = None,
    second_view: Any = None,
    passing: Any = None,
) -> Any:
    """Diagnose embeddings: find problems, their likely causes, and what to change.

    For a run, 2,048 rows of its data and two views of each are embedded, and its settings and
    history are used; the diagnosis is also written to the run folder as `diagnosis.json`.

    Args:
        subject: a run (a `Run`, its folder, an `OpenRun`), `Embeddings`, a matrix, a dictionary of
            arrays, a pandas, polars, pyarrow or `datasets` table, a faiss index, a file
            (`.npz`, `.npy`, parquet, Arrow, `.pt`, CSV, ...) or a folder of shards.
        objective: objective that the embeddings were trained with, or its text. A run takes it from
            its settings, unless it was trained with an object.
        batch: number of pairs per step; a run takes it from its settings.
        rows: maximum number of rows, sampled at random.
        seed: seed of all random choices.
        task: downstream task, as arrays `symbols`, `contexts` and `labels` (or an `.npz` of them),
            with `pair_symbols` and `pair_contexts` of the contrastive data if they differ;
            estimates whether these data help.
        names: roles of arrays with other names, such as `{"X": "h", "y": "labels"}`.
        labels: an array, or a file of labels in the order of the rows or with their ids.
        pairs: embeddings of the other side of pairs, row by row or joined by ids; of any width.
        against: earlier embeddings to compare with: encoder, distribution, and rows that moved.
        metric: metric of nearest neighbours, "cosine" or "euclidean".
        history: records of a training run, or a file of them (`.jsonl`, `.json`, `.csv`).
        settings: nested settings of a training run, or a file of them (`.toml`, `.json`).
        progress: function that is called with a description and the share that is done.
        data, encoder, second_encoder, projector, predictor, view, second_view: objects that a run
            was trained with, if it cannot rebuild them from its settings.
        passing: for a run, device, precision, workers and ranks (`engine.Passing`). If ranks share
            the work, the first one diagnoses, and the others return None.

    Returns:
        A `Diagnosis`.

    Example:
        >>> import numpy as np
        >>> diagnose(np.ones((100, 8))).findings[0].name
        'full_collapse'
    """
    from chiaroscuro import diagnostics

    aim = diagnostics.read_task(task)
    objects = _objects(locals())
    if is_run(subject):
        beside = _without_none(
            labels=labels, pairs=pairs, names=names, history=history, settings=settings
        )
        need(
            not beside,
            lambda: (
                f"`diagnose` takes {', '.join(beside)} of a run from its folder; leave them out, "
                "or give the embeddings as a file."
            ),
        )
        run = _opened(subject, objects)
        seen = _examine(run, rows, passing)
        if _only_embeds(passing):
            return None
        made = _diagnose_run(run, seen, rows, seed, aim, metric)
        if against is None:
            return made
        return diagnostics.with_drift(made, seen.embeddings, against, seed)
    objects.pop("objective", None)
    _require_none("diagnose", objects)
    table = _settings(settings)
    loss = _objective(objective, table)
    context = diagnostics.Context(
        loss=loss,
        batch=table.get("batch") if batch is None else batch,
        settings=table,
        history=_history(history),
        task=aim,
        metric=metric,
    )
    inputs = diagnostics.Inputs(names or {}, labels, pairs)
    made = diagnostics.diagnose(subject, context, rows, seed, inputs, progress)
    if against is None:
        return made
    return diagnostics.with_drift(made, subject, against, seed, diagnostics.Inputs(names or {}))


def compare(
    first: Any, second: Any, rows: int = 50_000, seed: int = 0, metric: str = "cosine"
) -> Any:
    """Compare two embeddings or runs: their measures, and which is better for which rows.

    Rows are matched by ids, or by position if there are no ids and equally many rows.

    Args:
        first, second: subjects, as `diagnose` accepts them.
        rows: maximum number of rows, sampled at random.
        seed: seed of all random choices.
        metric: metric of nearest neighbours, "cosine" or "euclidean".

    Returns:
        A `Comparison`.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> comparison = compare(x, x[:, :4])
        >>> comparison.first.measures["d"], comparison.second.measures["d"], comparison.versus.n
        (8, 4, 100)
    """
    from chiaroscuro import diagnostics

    made, seen = [], []
    for subject in (first, second):
        if is_run(subject):
            run = _opened(subject, {})
            examined = _examine(run, rows)
            made.append(_diagnose_run(run, examined, rows, seed, None, metric))
            seen.append(examined.embeddings)
        else:
            made.append(diagnose(subject, rows=rows, seed=seed, metric=metric))
            read = diagnostics.read(subject, rows, seed)
            ids = read.ids(read.rows) if "ids" in read.source.arrays else None
            seen.append(dataclasses.replace(read.embeddings, ids=ids))
    return diagnostics.compare((made[0], made[1]), (seen[0], seen[1]), metric)


def _settings(given: Any) -> dict[str, Any]:
    return read_settings(given) if isinstance(given, str | os.PathLike) else dict(given or {})


def _history(given: Any) -> Any:
    return read_history(given) if isinstance(given, str | os.PathLike) else given or ()


def _objective(given: Any, settings: dict[str, Any]) -> Any:
    """Return the objective that was given, or that the settings name, or InfoNCE at their
    temperature.
    """
    tau = settings.pop("temperature", None)
    given = settings.get("objective") if given is None else given
    if given is None and isinstance(tau, int | float):
        given = f"InfoNCE(kernel=Cosine(tau={tau}))"
    return _parse(given) if isinstance(given, str) else given


def _examine(run: Any, rows: int = ROWS, passing: Any = None) -> Any:
    from chiaroscuro import engine

    return engine.examine(run, min(rows, ROWS), passing=passing or engine.Passing())


def _diagnose_run(
    run: Any,
    seen: Any,
    rows: int = ROWS,
    seed: int = 0,
    task: Any = None,
    metric: str = "cosine",
) -> Any:
    from chiaroscuro import diagnostics

    records = run.history().records
    context = diagnostics.Context(
        loss=run.contrast,
        batch=run.settings.batch,
        queue=run.settings.network.queue,
        settings=run.settings.table(),
        history=records,
        projector=run.networks.projectors[0],
        first_projector=run.untrained.projectors[0],
        decay=_decay(run.settings, records),
        parameters=seen.second,
        first_parameters=seen.first,
        model=run.networks.encoders[0],
        first_model=run.untrained.encoders[0],
        given=run.given,
        step=run.step,
        inputs=seen.inputs,
        task=task,
        metric=metric,
    )
    made = diagnostics.diagnose(seen.embeddings, context, min(rows, ROWS), seed)
    made = dataclasses.replace(made, subject=run.name)
    if run.run is not None:
        run.run.write_diagnosis(made.json())
    return made


def _decay(settings: Any, records: Any) -> float | None:
    """Return lr wd steps of a run, summed over the steps made; None where decay is not so simple.

    By the rates of the history, which know of another rate or more epochs after a resumption; by
    the schedule where none is recorded, from the end of the first epoch.
    """
    if settings.optimiser.decayed(1.0) is None:
        return None
    rates = _recorded_rates(records)
    if rates is None:
        rates = _scheduled_rates(settings, records)
    return None if rates is None else settings.optimiser.decayed(rates)


def _steps_made(records: Any) -> int:
    return max((int(one.get("step") or 0) for one in records), default=0)


def _recorded_rates(records: Any) -> float | None:
    """Return the learning rates summed over the steps, drawn straight between recorded ones."""
    import numpy as np

    rates = {int(one["step"]): float(one["lr"]) for one in records if {"step", "lr"} <= set(one)}
    if not rates:
        return None
    known = sorted(rates)
    steps = np.arange(1, _steps_made(records) + 1)
    return float(np.interp(steps, known, [rates[step] for step in known]).sum())


def _scheduled_rates(settings: Any, records: Any) -> float | None:
    ended = next((one for one in records if one.get("epoch") and one.get("step")), None)
    if ended is None:
        return None
    per_epoch = int(ended["step"]) // int(ended["epoch"])
    steps = settings.epochs * per_epoch
    made = min(_steps_made(records), steps)
    return settings.optimiser.lr * settings.schedule.total(made, steps, per_epoch)


def evaluate(
    subject: Any,
    probes: Sequence[str] = ("ridge", "sgd"),
    template: str | None = None,
    *,
    on: Sequence[Any] = (),
    data: Any = None,
    encoder: Any = None,
    second_encoder: Any = None,
    projector: Any = None,
    predictor: Any = None,
    objective: Any = None,
    view: Any = None,
    second_view: Any = None,
    passing: Any = None,
) -> dict[str, Any]:
    """Evaluate embeddings on held-out rows, next to raw input and the untrained network.

    For a run, the result is also written to its folder as `evaluation.json`.

    Args:
        subject: a run (a `Run`, its folder, an `OpenRun`), `Embeddings`, or an `.npz` file.
        probes: linear probes to fit, among "ridge", "logistic" and "sgd".
        template: for a run, the text of a class for zero-shot classification, such as "a photo of
            a {}"; None is the name alone.
        on: for a run, datasets to evaluate on, each as `open_data` accepts it; by default the data
            of the run.
        data, encoder, second_encoder, projector, predictor, objective, view, second_view: objects
            that a run was trained with, if it cannot rebuild them from its settings.
        passing: for a run, device, precision, workers and ranks (`engine.Passing`). If ranks share
            the work, the first one evaluates.

    Returns:
        `{"protocol": ..., "results": ...}`, as `diagnostics.evaluate` describes it; with `on` a
        dictionary of these, by the name of the dataset. {} on ranks that only embed.

    Example:
        >>> import numpy as np
        >>> h, y = np.concatenate([np.eye(3)] * 20), np.tile(np.arange(3), 20)
        >>> seen = Embeddings(h=h, labels=y, split=np.repeat([0, 1], 30))
        >>> evaluate(seen, probes=["ridge"])["results"]["encoder"]["linear"]
        1.0
    """
    from chiaroscuro import diagnostics

    objects = _objects(locals())
    if not is_run(subject):
        _require_none("evaluate", objects | _without_none(on=on or None))
        need(
            template is None,
            lambda: f"`--template {template}` needs a run; `{subject}` holds its prompts.",
        )
        path = isinstance(subject, str | os.PathLike)
        embeddings = Embeddings.load(subject) if path else subject
        about = {"subject": str(subject)} if path else {}
        return _with_protocol(diagnostics.evaluate(embeddings, probes), about, embeddings)
    from chiaroscuro import engine

    run = _opened(subject, objects)
    if on:
        return _on_each(run, on, probes, template or "{}", passing)
    embeddings = engine.embed(run, template=template or "{}", passing=passing)
    if _only_embeds(passing):
        return {}
    about = {"subject": run.name if run.run is None else str(run.run.folder)}
    about["weights"] = run.weights
    made = _with_protocol(diagnostics.evaluate(embeddings, probes), about, embeddings)
    if run.run is not None:
        run.run.write_evaluation(made)
    return made


def _only_embeds(passing: Any) -> bool:
    """Return whether this is a rank that only helps to embed."""
    from chiaroscuro import engine

    return passing is not None and passing.spread and not engine.is_first()


def _on_each(
    run: Any, on: Sequence[Any], probes: Sequence[str], template: str, passing: Any
) -> dict[str, Any]:
    """Evaluate a run on several datasets, each opened, embedded and let go in turn."""
    from chiaroscuro import data, diagnostics, engine

    need(
        not isinstance(on, str),
        lambda: f"`evaluate(on)` needs a list of datasets; received the text `{on}`.",
    )
    about = {"subject": run.name if run.run is None else str(run.run.folder)}
    about["weights"] = run.weights
    results: dict[str, Any] = {}
    for one in on:
        source = one if isinstance(one, str) else data.open_data(one)
        name = source if isinstance(source, str) else source.name
        while name in results:
            name += "'"
        try:
            embeddings = engine.embed(run, source, template=template, passing=passing)
            if _only_embeds(passing):
                continue
            made = diagnostics.evaluate(embeddings, probes)
        except InputError as error:
            raise InputError(
                f"`{name}`, dataset {len(results) + 1} of {len(on)}: {error}"
            ) from None
        results[name] = _with_protocol(made, {**about, "data": name}, embeddings)
    return results


def _with_protocol(made: Any, about: dict[str, str], embeddings: Any) -> Any:
    if skipped := embeddings.facts().get("skipped"):
        about["skipped"] = skipped
    made["protocol"] = about | made["protocol"]
    return made


def report(
    subjects: Any,
    path: str | os.PathLike | None = None,
    points: int = 10_000,
    maps: Sequence[str] = ("tsne",),
    diagnosis: Mapping[str, Any] | None = None,
    complete: bool = True,
    *,
    data: Any = None,
    encoder: Any = None,
    second_encoder: Any = None,
    projector: Any = None,
    predictor: Any = None,
    objective: Any = None,
    view: Any = None,
    second_view: Any = None,
) -> Path:
    """Write a report page that shows what was learned, and return its path.

    A run is first embedded, diagnosed and evaluated if necessary; `complete=False` skips this.
    What cannot be computed (missing objects of a run, data without labels) is left out of the page,
    with a message on standard error.

    Args:
        subjects: a run (a `Run`, its folder, an `OpenRun`), a `Diagnosis`, embeddings, a folder or
            a file of them; or several of these, which are compared.
        path: path of the page; None is `report.html` in the folder of the run.
        points: maximum number of samples to show.
        maps: maps besides PCA and spectral: "tsne", "umap"; the page opens with t-SNE.
        diagnosis: diagnosis of the first subject, if it is not in its folder.
        complete: whether to diagnose and evaluate runs first.
        data, encoder, second_encoder, projector, predictor, objective, view, second_view: objects
            that the run was trained with, if it cannot rebuild them; for one run. For several, open
            each with its own: `report([engine.open_run(run, encoder=...), ...])`.

    Example:
        >>> import numpy as np, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report(Embeddings(h=np.eye(9)), f"{folder}/page.html").name
        'page.html'
    """
    from chiaroscuro.report import report as write

    listed = list(subjects) if isinstance(subjects, list | tuple) else [subjects]
    objects = _objects(locals())
    if objects:
        need(
            len(listed) == 1 and is_run(listed[0]),
            lambda: (
                f"`report({', '.join(f'{name}=...' for name in objects)})` is for one run; "
                f"received {len(listed)} subjects. Open each with its own: `engine.open_run(run, "
                "encoder=...)`."
            ),
        )
        listed = [_opened(listed[0], objects)]
    place = _page_of(listed) if path is None else path
    for at, run in enumerate(listed):
        if is_run(run) and complete and diagnosis is None:
            for sentence in complete_run(run):
                print(sentence, file=sys.stderr)
        if _is_open(run):
            listed[at] = _in_memory_subject(run) if run.run is None else run.run
    return write(listed, place, points, maps, diagnosis)


def _in_memory_subject(run: Any) -> Any:
    """Return a training in memory as a subject of the page."""
    from chiaroscuro.report import Subject, diagnosis_of

    seen = _examine(run)
    evaluation = None
    if seen.embeddings.labels is not None and seen.embeddings.split is not None:
        evaluation = evaluate(run)
    return Subject(
        run.name,
        embeddings=seen.embeddings,
        diagnosis=diagnosis_of(_diagnose_run(run, seen).json()),
        evaluation=evaluation,
        settings=run.settings.table(),
        records=run.history().records,
    )


def complete_run(subject: Any) -> list[str]:
    """Embed, diagnose and evaluate a run that has not been, so that its page is whole.

    Args:
        subject: a run, its folder, or an `OpenRun`, which brings objects.

    Returns:
        A sentence for each thing that could not be done.
    """
    run = subject.run if _is_open(subject) else subject
    if run is None:
        return []  # in memory: there is no folder to complete
    run = run if isinstance(run, Run) else Run.open(run)
    embedded = any((run.folder / "embeddings").glob("*.npz"))
    said: list[str] = []
    if embedded and run.diagnosis() is not None and run.evaluation() is not None:
        return said
    try:
        from chiaroscuro import engine
    except ImportError as error:
        return [f"`{run.folder}` is shown as it is, neither diagnosed nor evaluated: {error}."]
    opened = engine.open_run(subject if _is_open(subject) else run)
    try:
        if not embedded or run.diagnosis() is None:
            seen = _examine(opened)
            if not embedded:
                run.require_own()
                seen.embeddings.save(run.embeddings("report"))
            if run.diagnosis() is None:
                _diagnose_run(opened, seen)
    except ChiaroError as error:
        what = "not diagnosed" if run.diagnosis() is None else "shown without a map"
        said.append(f"`{run.folder}` is {what}: {error}")
    try:
        if run.evaluation() is None:
            evaluate(opened)
    except ChiaroError as error:
        unlabelled = "needs `labels`" in str(error)
        why = "it has no labels, so the page shows no accuracy." if unlabelled else str(error)
        said.append(f"`{run.folder}` is not evaluated: {why}")
    return said


def _page_of(subjects: Sequence[Any]) -> Path:
    one = subjects[0].run if _is_open(subjects[0]) else subjects[0]
    if len(subjects) != 1 or not is_run(one):
        raise InputError(
            f"A report of {len(subjects)} subjects needs a place for its page, `path`; only one "
            "run has a place of its own."
        )
    return (one if isinstance(one, Run) else Run.open(one)).report


# ---- runs ----


def is_run(subject: Any) -> bool:
    """Return whether it is a run: one in memory, opened, or the folder of one."""
    if isinstance(subject, Run) or _is_open(subject):
        return True
    path = isinstance(subject, str | os.PathLike)
    return path and os.path.isfile(os.path.join(subject, "settings.toml"))


def _is_open(subject: Any) -> bool:
    """Return whether it is an `OpenRun`, without importing torch."""
    return type(subject).__name__ == "OpenRun"


def _opened(subject: Any, objects: dict[str, Any]) -> Any:
    from chiaroscuro import engine

    return engine.open_run(subject, **objects)


_OBJECTS = (
    *("data", "encoder", "second_encoder", "projector", "predictor", "objective", "view"),
    "second_view",
)


def _objects(given: dict[str, Any]) -> dict[str, Any]:
    """Return those of the parameters of a call that a run may have been trained with."""
    return _without_none(**{name: given[name] for name in _OBJECTS})


def _without_none(**objects: Any) -> dict[str, Any]:
    return {name: value for name, value in objects.items() if value is not None}


def _require_none(call: str, objects: dict[str, Any]) -> None:
    need(
        not objects,
        lambda: (
            f"`{call}({', '.join(f'{name}=...' for name in objects)})` is for a run; the subject "
            "is none."
        ),
    )


def _parse(text: str) -> Any:
    import chiaroscuro

    return chiaroscuro.parse(text)
