"""The verbs that call one function and print where the result went."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from chiaroscuro.errors import ChiaroError, InputError

__all__ = [
    "cite",
    "data_get",
    "data_list",
    "demo",
    "embed",
    "export",
    "finetune",
    "mine",
    "preset_list",
    "preset_show",
    "reproduce",
    "tune",
    "view",
]


def demo(call: argparse.Namespace) -> int:
    from chiaroscuro import demo

    demo.main(call.out)
    return 0


def preset_list(call: argparse.Namespace) -> int:
    from chiaroscuro.cli.listing import print_columns
    from chiaroscuro.engine import preset_summary, presets

    print_columns({name: preset_summary(name) for name in presets()})
    return 0


def preset_show(call: argparse.Namespace) -> int:
    from chiaroscuro.engine import preset_text

    print(preset_text(call.name), end="")
    return 0


def embed(call: argparse.Namespace) -> int:
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


def export(call: argparse.Namespace) -> int:
    from chiaroscuro.exporting import export

    folder = export(call.run, call.to, call.out, call.licence, call.evaluation, call.side)
    print(f"export: {folder}")
    return 0


def finetune(call: argparse.Namespace) -> int:
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
        view=call.view,
        partial=call.partial,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(json.dumps(result.json(), indent=2) if call.json else result)
    print(f"finetune: {result.folder}", file=sys.stderr)
    return 0


def mine(call: argparse.Namespace) -> int:
    from chiaroscuro.mining import mine, save_triples

    made = mine(
        call.run, call.data, call.negatives, skip=call.skip, margin=call.margin, index=call.index
    )
    save_triples(made, call.out)
    print(f"triples: {call.out}")
    print(f"{made.name}, {call.negatives} negatives each", file=sys.stderr)
    return 0


def view(call: argparse.Namespace) -> int:
    from chiaroscuro.report import view

    view(call.folder, call.port)
    return 0


def reproduce(call: argparse.Namespace) -> int:
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


def tune(call: argparse.Namespace) -> int:
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


def data_list(call: argparse.Namespace) -> int:
    from chiaroscuro.data import available

    datasets = available()
    width = max(len(one.name) for one in datasets)
    for one in datasets:
        print(f"{one.name:<{width}}  {one.where or 'not downloaded':<14}  {one.note}".rstrip())
    return 0


def data_get(call: argparse.Namespace) -> int:
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


def cite(call: argparse.Namespace) -> int:
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
