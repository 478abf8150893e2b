"""The command line: parse, call one public function, print where the result went.

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


_TEMPLATE = "a class as a text, such as 'a photo of a {}', for zero-shot classification"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are our sentences."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"`{self.prog}`: {message}; see `{self.prog} --help`.")


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
        description="Contrastive representation learning: objectives, diagnosis, reproduction.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"chiaro {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    demo = verbs.add_parser("demo", help="the main job on the embedded data", allow_abbrev=False)
    demo.add_argument("--out", metavar="DIR", help="where the files go")
    demo.set_defaults(verb=_demo)

    train = verbs.add_parser("train", help="settings to a run", allow_abbrev=False)
    train.add_argument("settings", metavar="PRESET|FILE.toml", help="see `chiaro preset list`")
    train.add_argument(
        "--set",
        dest="sets",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="such as optimiser.lr=0.1",
    )
    train.add_argument("--out", metavar="DIR", required=True, help="the run folder")
    train.add_argument("--resume", action="store_true", help="from the newest good checkpoint")
    train.add_argument(
        "--log",
        dest="logs",
        choices=("mlflow", "tensorboard", "wandb"),
        action="append",
        default=[],
        help="into the run folder, beside the history",
    )
    train.set_defaults(verb=_train)

    preset = verbs.add_parser("preset", help="methods, as small TOML files", allow_abbrev=False)
    presets = preset.add_subparsers(metavar="list|show", required=True)
    presets.add_parser("list", help="their names").set_defaults(verb=_preset_list)
    show = presets.add_parser("show", help="the text of one, to copy and edit")
    show.add_argument("name", metavar="NAME")
    show.set_defaults(verb=_preset_show)

    embed = verbs.add_parser("embed", help="a run to embeddings", allow_abbrev=False)
    embed.add_argument("run", metavar="RUN")
    embed.add_argument("--data", metavar="SPEC", help="other data than it was trained on")
    embed.add_argument("--template", metavar="TEXT", default="{}", help=_TEMPLATE)
    embed.add_argument("--out", metavar="FILE.npz", required=True)
    embed.set_defaults(verb=_embed)

    evaluate = verbs.add_parser(
        "evaluate", help="accuracy on held-out data, beside two controls", allow_abbrev=False
    )
    evaluate.add_argument("subject", metavar="RUN|FILE.npz")
    evaluate.add_argument("--template", metavar="TEXT", help=f"{_TEMPLATE}; of a RUN only")
    evaluate.add_argument("--json", action="store_true", help="one JSON document")
    evaluate.set_defaults(verb=_evaluate)

    diagnose = verbs.add_parser(
        "diagnose", help="what is wrong, if anything, and what to change", allow_abbrev=False
    )
    diagnose.add_argument("subject", metavar="RUN|FILE.npz|FILE.npy")
    diagnose.add_argument("--objective", metavar="SPEC", help="of a FILE; a RUN knows its own")
    diagnose.add_argument("--batch", metavar="N", type=int, help="of a FILE; a RUN knows its own")
    diagnose.add_argument(
        "--task", metavar="FILE.npz", help="symbols, contexts, labels: will these data help it?"
    )
    diagnose.add_argument("--json", action="store_true", help="one JSON document")
    diagnose.add_argument("--out", metavar="DIR", help="diagnosis.json and figures")
    diagnose.set_defaults(verb=_diagnose)

    report = verbs.add_parser(
        "report", help="one page that shows what was learnt", allow_abbrev=False
    )
    report.add_argument("subjects", metavar="RUN|DIR|FILE.npz", nargs="+", help="several: compared")
    report.add_argument("--out", metavar="FILE.html", help="report.html in the RUN unless given")
    report.add_argument("--points", metavar="N", type=int, default=10_000, help="samples shown")
    report.add_argument("--map", metavar="tsne|umap", action="append", default=[], help="slow")
    report.set_defaults(verb=_report)

    view = verbs.add_parser("view", help="the same page, live, on loopback", allow_abbrev=False)
    view.add_argument("folder", metavar="DIR", nargs="?", default=".", help="of runs")
    view.add_argument("--port", metavar="N", type=int, default=0, help="0 takes a free one")
    view.set_defaults(verb=_view)

    reproduce = verbs.add_parser(
        "reproduce", help="papers' experiments, judged", allow_abbrev=False
    )
    reproduce.add_argument("what", metavar="WHAT", nargs="*", help="a lab, a paper or a claim: V4")
    reproduce.add_argument("--all", action="store_true", help="every lab")
    reproduce.add_argument("--list", action="store_true", help="what there is")
    reproduce.add_argument("--scale", default="quick", help="quick (seconds), laptop or paper")
    reproduce.add_argument("--seed", metavar="N", type=int, help="the first of the seeds")
    reproduce.add_argument(
        "--jobs", metavar="N", type=int, help="labs at once; all cores at the quick scale, else 1"
    )
    reproduce.add_argument("--json", action="store_true", help="one JSON document")
    reproduce.add_argument("--out", metavar="DIR", default="chiaro-labs", help="figures and JSON")
    reproduce.set_defaults(verb=_reproduce)

    tune = verbs.add_parser("tune", help="random search with early stopping", allow_abbrev=False)
    tune.add_argument("search", metavar="PRESET|FILE.toml", help="settings, or a search of them")
    tune.add_argument("--trials", metavar="N", type=int, required=True, help="settings drawn")
    tune.add_argument("--out", metavar="DIR", required=True, help="the folder of the search")
    tune.add_argument("--resume", action="store_true", help="no trial is lost or run again")
    tune.add_argument(
        "--set",
        dest="sets",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="of the settings, such as epochs=10",
    )
    tune.add_argument("--engine", default="optuna", help="optuna, or ray for clusters")
    tune.add_argument("--json", action="store_true", help="one JSON document")
    tune.set_defaults(verb=_tune)

    data = verbs.add_parser("data", help="which data are here; fetch others", allow_abbrev=False)
    datas = data.add_subparsers(metavar="list|get", required=True)
    datas.add_parser("list", help="by name").set_defaults(verb=_data_list)
    get = datas.add_parser("get", help="download the official files")
    get.add_argument("name", metavar="NAME")
    get.set_defaults(verb=_data_get)

    cite = verbs.add_parser("cite", help="the BibTeX of what is used", allow_abbrev=False)
    cite.add_argument("object", metavar="OBJECT", help='a name, or "InfoNCE(Gaussian(tau=0.5))"')
    cite.add_argument("--keys", action="store_true", help="only the keys, one a line")
    cite.set_defaults(verb=_cite)

    doctor = verbs.add_parser("doctor", help="what this machine offers", allow_abbrev=False)
    doctor.add_argument("--json", action="store_true", help="one JSON document")
    doctor.set_defaults(verb=_doctor)
    return parser, list(verbs.choices)


# ---- verbs ----


def _demo(call: argparse.Namespace) -> int:
    from chiaroscuro import demo

    demo.main(call.out)
    return 0


def _train(call: argparse.Namespace) -> int:
    from chiaroscuro.diagnostics import glance
    from chiaroscuro.engine import (
        MLflow,
        TensorBoard,
        WandB,
        held_out,
        read_settings,
        snapshots,
        train,
    )

    settings = read_settings(call.settings, call.sets)
    kinds = {"mlflow": MLflow, "tensorboard": TensorBoard, "wandb": WandB}
    loggers = [kinds[name]() for name in set(call.logs)]
    look = held_out(glance, rows=500, every=max(1, settings.epochs // 20))
    monitors = [look, snapshots(), *loggers]
    run = train(settings, call.out, monitors, call.resume, progress=sys.stderr)
    if os.environ.get("RANK", "0") == "0":
        print(f"run: {run.folder}")
    return 0


def _preset_list(call: argparse.Namespace) -> int:
    from chiaroscuro.engine import preset_text, presets

    names = presets()
    width = max(map(len, names))
    for name in names:
        about = preset_text(name).splitlines()[0].removeprefix("# ")
        print(f"{name:<{width}}  {about}")
    return 0


def _preset_show(call: argparse.Namespace) -> int:
    from chiaroscuro.engine import preset_text

    print(preset_text(call.name), end="")
    return 0


def _embed(call: argparse.Namespace) -> int:
    from chiaroscuro.engine import embed

    embeddings = embed(call.run, call.data, template=call.template)
    if skipped := embeddings.facts().get("skipped"):
        print(skipped, file=sys.stderr)
    print(f"embeddings: {embeddings.save(call.out)}")
    return 0


def _evaluate(call: argparse.Namespace) -> int:
    from chiaroscuro.artifacts import Embeddings
    from chiaroscuro.diagnostics import evaluate, table

    about = {"subject": call.subject}
    if os.path.isdir(call.subject):
        from chiaroscuro.engine import embed, newest_weights

        about["weights"] = newest_weights(call.subject)
        embeddings = embed(call.subject, template=call.template or "{}")
    else:
        if call.template is not None:
            raise InputError(
                f"`--template {call.template}` needs a run; `{call.subject}` holds its prompts."
            )
        embeddings = Embeddings.load(call.subject)
    found = evaluate(embeddings)
    if skipped := embeddings.facts().get("skipped"):
        about["skipped"] = skipped
        print(skipped, file=sys.stderr)
    found["protocol"] = about | found["protocol"]
    if call.json:
        import json

        print(json.dumps(found, indent=2))
    else:
        print(table(found))
    return 0


def _diagnose(call: argparse.Namespace) -> int:
    import json

    import chiaroscuro
    from chiaroscuro.diagnostics import draw, page, read_task

    if os.path.isdir(call.subject) and (call.objective is not None or call.batch is not None):
        raise InputError(
            "`chiaro diagnose --objective --batch` are for a file; the run "
            f"`{call.subject}` knows its own."
        )
    objective = None if call.objective is None else chiaroscuro.parse(call.objective)
    task = read_task(call.task)
    try:
        found = chiaroscuro.diagnose(call.subject, objective, call.batch, task=task or None)
    except InputError as error:
        if os.path.exists(call.subject):  # the call was right; of these data no diagnosis is made
            raise ChiaroError(str(error)) from None
        raise
    if call.json:
        print(json.dumps(found.json(), indent=2))
    else:
        page(found)
    if call.out is not None:
        os.makedirs(call.out, exist_ok=True)
        path = os.path.join(call.out, "diagnosis.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found.json(), file, indent=2)
        for written in (path, *draw(found, call.out)):
            print(f"diagnosis: {written}", file=sys.stderr)
    return 0


def _report(call: argparse.Namespace) -> int:
    from chiaroscuro.report import report

    out = call.out
    if out is None:
        one = call.subjects[0]
        if len(call.subjects) > 1 or not os.path.isfile(os.path.join(one, "settings.toml")):
            raise InputError(
                f"`chiaro report` needs --out FILE.html for {len(call.subjects)} subjects, the "
                f"first of which is `{one}`; only one run has a place for its page."
            )
        out = os.path.join(one, "report.html")
    print(f"report: {report(call.subjects, out, call.points, call.map)}")
    return 0


def _view(call: argparse.Namespace) -> int:
    from chiaroscuro.report import view

    view(call.folder, call.port)
    return 0


def _reproduce(call: argparse.Namespace) -> int:
    from chiaroscuro import labs

    if call.list:
        chosen = labs.chosen(call.what) if call.what else labs.found()
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


def _print_labs(found: Sequence[Any], as_json: bool) -> None:
    if as_json:
        import json

        rows = [
            {"lab": lab.name, "paper": lab.paper, "title": lab.title, "claims": lab.claims}
            for lab in found
        ]
        print(json.dumps(rows, indent=2))
        return
    width = max(len(f"{lab.paper}/{lab.name}") for lab in found)
    for lab in found:
        print(f"{lab.paper + '/' + lab.name:<{width}}  {', '.join(lab.topics):<4}  {lab.title}")


def _tune(call: argparse.Namespace) -> int:
    from chiaroscuro.tuning import draw_trials, read_search, tune

    search = read_search(call.search, call.sets)
    found = tune(search, call.trials, call.out, call.resume, call.engine, progress=sys.stderr)
    draw_trials(found, call.out)
    if call.json:
        import json

        print(json.dumps(found.json(), indent=2))
        return 0
    if (best := found.best) is not None:
        print(
            f"best: trial {best.number}, {search.measure} {best.value:.4f}: "
            f"{os.path.join(call.out, 'best.toml')}"
        )
    print(f"trials: {os.path.join(call.out, 'trials.json')}")
    return 0


def _data_list(call: argparse.Namespace) -> int:
    from chiaroscuro.data import available

    found = available()
    width = max(len(one.name) for one in found)
    for one in found:
        print(f"{one.name:<{width}}  {one.where or 'not here'}  {one.note}".rstrip())
    return 0


def _data_get(call: argparse.Namespace) -> int:
    from chiaroscuro.data import get

    print(f"data: {get(call.name)}")
    return 0


def _cite(call: argparse.Namespace) -> int:
    from chiaroscuro.references import bibliography, cited

    entries = bibliography()
    used = cited(_object(call.object))
    if missing := [key for key in used if key not in entries]:
        raise ChiaroError(f"`references.bib` has no entry for {', '.join(missing)}.")
    if not used:
        print(f"`{call.object}` cites nothing: it comes from no paper.", file=sys.stderr)
    elif call.keys:
        print("\n".join(used))
    else:
        print("\n\n".join(entries[key] for key in used))
    return 0


def _object(text: str) -> Any:
    """The object of a spec; of a bare name its default object, or the class if it has none."""
    import chiaroscuro

    name = text.strip()
    if name not in chiaroscuro.__all__ and name not in chiaroscuro.NAMES:
        return chiaroscuro.parse(text)
    try:
        return chiaroscuro.parse(f"{name}()")
    except ChiaroError:
        return getattr(chiaroscuro, name, None) or chiaroscuro.NAMES[name]


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
            return ", ".join(f"{name} {_line(value)}" for name, value in fact.items()) or "nothing"
        case list():
            return ", ".join(map(str, fact)) or "nothing"
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

    found = re.search(r"BLAS_INFO=(\w+)", config)
    return found[1] if found else None


def _compiler() -> str | None:
    import shutil

    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _data() -> dict[str, Any] | None:
    """The folder that `CHIARO_DATA` names, and what is in it."""
    folder = os.environ.get("CHIARO_DATA")
    if not folder:
        return None
    files = sorted(os.listdir(folder)) if os.path.isdir(folder) else None
    return {"CHIARO_DATA": folder, "holds": files}


if __name__ == "__main__":
    sys.exit(main())
