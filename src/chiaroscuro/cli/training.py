"""`chiaro train`: which settings and which folder the words mean."""

import argparse
import os
import re
import shlex
import sys
from typing import Any

from chiaroscuro.errors import InputError

__all__ = ["train"]


def train(call: argparse.Namespace) -> int:
    from chiaroscuro.diagnostics import glance
    from chiaroscuro.engine import MLflow, TensorBoard, WandB, held_out, snapshots, train

    if call.restart and not call.resume:
        raise InputError("`--restart` goes with `--resume`: it begins a resumed run again.")
    first = os.environ.get("RANK", "0") == "0"
    settings, folder, said = _resumed(call) if call.resume else _new(call)
    settings, modules = _initial(settings, call.init)
    for sentence in said if first else ():
        print(sentence, file=sys.stderr, flush=True)
    kinds = {"mlflow": MLflow, "tensorboard": TensorBoard, "wandb": WandB}
    loggers = [kinds[name]() for name in set(call.logs)]
    measure = held_out(glance, rows=500, every=max(1, settings.epochs // 20))
    monitors = [measure, snapshots(), *loggers]
    run = train(
        settings,
        folder,
        monitors,
        call.resume,
        progress=sys.stderr,
        restart=call.restart,
        **modules,
    )
    if first:
        print(f"run: {run.folder}")
        print(_next_commands(run), file=sys.stderr)
    return 0


def _initial(settings: Any, init: str | None) -> tuple[Any, dict[str, Any]]:
    """Return settings with the networks of another run, and those networks with their weights."""
    import dataclasses

    from chiaroscuro.engine import open_run

    if init is None:
        return settings, {}
    before = open_run(init)
    networks = before.networks
    settings = dataclasses.replace(settings, network=before.settings.network)
    modules = {"encoder": networks.encoders[0], "projector": networks.projectors[0]}
    if len(networks.encoders) > 1:
        modules["second_encoder"] = networks.encoders[1]
    if len(networks.projectors) > 1:
        raise InputError(f"`--init {init}` needs a run with one projector; this one has 2.")
    return settings, modules


def _new(call: argparse.Namespace) -> tuple[Any, str, list[str]]:
    """Return the settings of a new run, its folder, and what was chosen and why."""
    from chiaroscuro.data import absolute_source, as_call, is_source
    from chiaroscuro.engine import read_settings, suggest

    what = call.what
    if what is None:
        raise InputError(
            "`chiaro train` needs data, a preset or a file of settings; see `chiaro train --help`."
        )
    sets = [*([f"data.source={call.data}"] if call.data else []), *call.sets]
    is_settings = _is_settings(what)
    if not is_settings and is_source(what):
        source = as_call(what, labels=call.labels) if call.labels else what
        try:
            suggestion = suggest(source, call.minutes, sets)
        except InputError as error:
            column = re.search(r"with `labels='([^`]*)'`", str(error))
            if column is None or call.labels:
                raise
            labels = shlex.quote(column[1])
            raise InputError(
                f"{error} Here: `chiaro train {shlex.quote(what)} --labels {labels}`."
            ) from None
        settings, said = suggestion.settings, list(suggestion.reasons)
        said.append(
            "Change any setting with `--set`; `settings.toml` in the run folder has them all."
        )
    else:
        if not is_settings:
            raise InputError(_unknown(what))
        if call.minutes is not None:
            raise InputError(
                f"`--minutes {call.minutes:g}` chooses the epochs for data; `{what}` are settings: "
                "use `--set epochs=N`."
            )
        settings, said = read_settings(what, sets), []
        source = absolute_source(settings.data.source)
        settings = read_settings(settings, [f"data.source={_quoted(source)}"])
    return settings, call.out or _free_folder(what), said


def _resumed(call: argparse.Namespace) -> tuple[Any, str, list[str]]:
    """Return the settings of a run to continue, its folder, and what changes."""
    from chiaroscuro.data import absolute_source
    from chiaroscuro.engine import continued, read_settings

    if call.init:
        raise InputError("`--init RUN` starts a new run, and `--resume` continues one: choose one.")
    is_run = bool(call.what) and os.path.isfile(os.path.join(call.what, "settings.toml"))
    folder = call.out or (call.what if is_run else None)
    if folder is None and call.what and (os.sep in call.what or os.path.isdir(call.what)):
        there = "has no `settings.toml`" if os.path.isdir(call.what) else "does not exist"
        raise InputError(f"`chiaro train --resume` needs a run folder; `{call.what}` {there}.")
    if folder is None:
        raise InputError(
            "`chiaro train --resume` needs the run folder: `chiaro train RUN --resume`."
        )
    if not os.path.isfile(os.path.join(folder, "settings.toml")):
        if call.what is None or is_run:
            raise InputError(f"`{folder}` is not a run: it has no `settings.toml` to resume from.")
        return _new(call)
    sets = [*([f"data.source={_quoted(absolute_source(call.data))}"] if call.data else [])]
    if call.what is not None and _is_settings(call.what):  # given again: they have to agree
        given = read_settings(call.what, [*sets, *call.sets])
        source = absolute_source(given.data.source)
        return read_settings(given, [f"data.source={_quoted(source)}"]), folder, []
    return continued(folder, [*sets, *call.sets]), folder, []


def _is_settings(what: str) -> bool:
    """Return whether a word names settings; `digits`, a preset too, is data first."""
    from chiaroscuro.engine import presets

    return what.endswith(".toml") or (what in presets() and what != "digits")


def _quoted(text: str) -> str:
    import json

    return json.dumps(text)


def _unknown(what: str) -> str:
    from chiaroscuro.engine import presets
    from chiaroscuro.engine.records import nearest

    if os.sep in what or "." in os.path.basename(what):
        return f"`{what}` does not exist: no file, folder or preset has that name."
    return (
        f"`{what}` is not a preset{nearest(what, presets())} Nor is it data: no file or folder has "
        "that name. See `chiaro preset list` and `chiaro data list`."
    )


def _free_folder(what: str) -> str:
    """Return the first of `runs/NAME-1`, `runs/NAME-2`, ... that is not there."""
    import re

    stem = os.path.basename(what.rstrip("/\\").split("(")[0]).split(".")[0]
    name = re.sub(r"[^\w-]+", "-", stem) or "run"
    number = 1
    while os.path.exists(folder := os.path.join("runs", f"{name}-{number}")):
        number += 1
    return folder


def _next_commands(run: Any) -> str:
    """Return what to do with a run, ready to be copied."""
    import shlex

    folder = shlex.quote(str(run.folder))
    name = shlex.quote(f"{run.folder.name or 'embeddings'}.npz")
    labelled = any("online_knn" in record for record in run.history().records)
    paired = bool(run.settings().get("network", {}).get("second_encoder"))
    judged = (
        "retrieval, next to chance and the untrained network"
        if paired and not labelled
        else "accuracy, next to raw input and the untrained network"
    )
    evaluate = {f"chiaro evaluate {folder}": judged}
    lines = {
        **(evaluate if labelled or paired else {}),
        f"chiaro diagnose {folder}": "find problems, and what to change",
        f"chiaro report {folder}": "write a report page",
        f"chiaro embed {folder} --out {name}": "save the embeddings as arrays",
    }
    width = max(map(len, lines))
    return "\n".join(["next:", *(f"  {line:<{width}}  {says}" for line, says in lines.items())])
