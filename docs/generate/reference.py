"""Write the reference: objects, settings, presets, data layouts, formats, findings, commands."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import math
import re
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

import docstrings
from docstrings import cited, escaped, summary

PACKAGES = (
    *("objectives", "kernels", "pairwise", "views", "models", "data", "engine", "diagnostics"),
    *("graphs", "dynamics", "artifacts", "exporting", "finetuning", "tuning", "report", "labs"),
)


def pages(root: Path) -> dict[str, str]:
    """Return the text of every page of the reference by its path."""
    made = {f"reference/{name}.md": _package(name) for name in PACKAGES}
    made["reference/chiaroscuro.md"] = _top()
    made["reference/index.md"] = _index()
    made["reference/settings.md"] = _settings()
    made["reference/presets.md"] = _presets()
    made["reference/layouts.md"] = _layouts()
    made["reference/formats.md"] = _formats()
    made["reference/findings.md"] = _findings()
    made["reference/cli.md"] = _commands()
    made["reference/bibliography.md"] = _bibliography()
    made["reference/notation.md"] = _file(root / "NOTATION.md")
    made["reference/changelog.md"] = _file(root / "CHANGELOG.md")
    return made


# ---- Python objects ----


def _public(name: str) -> dict[str, Any]:
    module = importlib.import_module(f"chiaroscuro.{name}")
    return {one: getattr(module, one) for one in sorted(module.__all__, key=str.lower)}


def _package(name: str) -> str:
    module = importlib.import_module(f"chiaroscuro.{name}")
    objects = _public(name)
    lines = [f"# chiaroscuro.{name}", "", docstrings.document(module), ""]
    lines += ["| name | summary |", "|---|---|"]
    lines += [
        f"| [`{one}`](#{one}) | {cited(escaped(_summary(thing)))} |"
        for one, thing in objects.items()
    ]
    for one, thing in objects.items():
        lines += ["", *_object(one, thing)]
    return "\n".join(lines) + "\n"


def _summary(thing: Any) -> str:
    if inspect.isclass(thing) or callable(thing) or inspect.ismodule(thing):
        return summary(thing)
    return f"`{_short(thing)}`"


def _short(value: Any) -> str:
    text = repr(value).replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= 80 else text[:77] + "..."


def _object(name: str, thing: Any) -> list[str]:
    lines = [f"## `{name}` {{#{name}}}", ""]
    if inspect.ismodule(thing) or not callable(thing):
        return [*lines, _summary(thing) if not inspect.ismodule(thing) else _escaped_doc(thing), ""]
    lines += ["```python", docstrings.signature(name, thing), "```", ""]
    lines += [docstrings.document(thing)]
    if inspect.isclass(thing):
        for method, function in _methods(thing):
            lines += [
                "",
                f"### `{name}.{method}` {{#{name}.{method}}}",
                "",
                "```python",
                docstrings.signature(method, function),
                "```",
                "",
                docstrings.document(function),
            ]
    return lines


def _escaped_doc(thing: Any) -> str:
    return docstrings.document(thing)


def _methods(thing: type) -> list[tuple[str, Any]]:
    """Return the public methods that a class itself defines and describes."""
    found = []
    for name, value in vars(thing).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        found.append((name, function))
    return found


def _homes() -> dict[str, str]:
    """Return, for each public name, the package whose page describes it."""
    return {one: package for package in reversed(PACKAGES) for one in _public(package)}


def _top() -> str:
    import chiaroscuro

    homes = _homes()
    lines = [
        "# chiaroscuro",
        "",
        docstrings.document(chiaroscuro),
        "Everything below is available as `cs.name` after `import chiaroscuro as cs`.",
        "",
        "| name | summary |",
        "|---|---|",
    ]
    own = []
    for name in sorted(chiaroscuro.__all__, key=str.lower):
        thing = getattr(chiaroscuro, name)
        if name in PACKAGES and not callable(thing):
            target = f"{name}.md"
        elif name in homes:
            target = f"{homes[name]}.md#{name}"
        elif inspect.ismodule(thing) or not callable(thing):
            lines.append(f"| `{name}` | {cited(escaped(_brief(thing)))} |")
            continue
        else:
            target = f"#{name}"
            own.append((name, thing))
        lines.append(f"| [`{name}`]({target}) | {cited(escaped(_brief(thing)))} |")
    if "diagnose" not in chiaroscuro.__all__:
        own.append(("diagnose", chiaroscuro.diagnose))
    for name, thing in own:
        lines += ["", *_object(name, thing)]
    return "\n".join(lines) + "\n"


def _brief(thing: Any) -> str:
    return summary(thing) if callable(thing) or inspect.ismodule(thing) else _summary(thing)


def _index() -> str:
    rows = {
        "cli.md": ("Command line", "every verb and option of `chiaro`"),
        "settings.md": ("Settings", "every key of `--set` and of a TOML file"),
        "presets.md": ("Presets", "complete settings to start from"),
        "layouts.md": ("Data layouts", "which files and folders can be read, and how"),
        "formats.md": ("File formats", "run folders, checkpoints and embeddings files"),
        "findings.md": ("Findings", "each rule of a diagnosis: evidence, cause, advice"),
        "chiaroscuro.md": ("Python", "every public name, by package"),
        "notation.md": ("Notation", "one symbol, one meaning, and the papers' letters"),
        "bibliography.md": ("Bibliography", "every paper that is cited"),
    }
    lines = [
        "# Reference",
        "",
        "These pages are generated from the code and its docstrings each time the site is built.",
        "",
        "| page | contents |",
        "|---|---|",
        *(f"| [{title}]({path}) | {about} |" for path, (title, about) in rows.items()),
        "",
        "## Packages",
        "",
        "| package | what it does |",
        "|---|---|",
    ]
    for name in PACKAGES:
        module = importlib.import_module(f"chiaroscuro.{name}")
        lines.append(f"| [`chiaroscuro.{name}`]({name}.md) | {escaped(summary(module))} |")
    return "\n".join(lines) + "\n"


# ---- settings and presets ----


def _ranges() -> dict[str, str]:
    """Return the range of every setting, recorded while default settings are checked."""
    from chiaroscuro.engine import settings

    found: dict[str, str] = {}

    def between(key: str, value: float, low: float, high: float = math.inf) -> None:
        found[key] = f"from {low:g}" if high > 1e15 else f"{low:g} to {high:g}"

    def one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
        found[key] = ", ".join(f"`{one}`" for one in allowed)

    with mock.patch.multiple(settings, between=between, one_of=one_of):
        settings.Settings()
    return found


def _settings() -> str:
    from chiaroscuro.cli.listing import setting_meanings
    from chiaroscuro.engine import Settings

    ranges = _ranges()
    lines = [
        "# Settings",
        "",
        "All settings of a training run. Set a key with `--set key=value` on the "
        "command line, with `key = value` in a TOML file, or in a dictionary for `cs.train`. "
        "`chiaro preset show NAME` prints a complete file to start from.",
        "",
    ]
    groups = [("", Settings)] + [
        (field.name, field.default_factory)  # type: ignore[misc]
        for field in dataclasses.fields(Settings)
        if dataclasses.is_dataclass(field.default_factory)
    ]
    for group, kind in groups:
        described = setting_meanings(kind)  # type: ignore[arg-type]
        head = summary(kind)
        lines += [f"## {group or 'Top level'}", "", escaped(head), ""]
        lines += ["| key | default | range | meaning and source |", "|---|---|---|---|"]
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            if dataclasses.is_dataclass(field.default_factory):
                continue
            key = f"{group}.{field.name}" if group else field.name
            default = json.dumps(field.default) if field.default is not dataclasses.MISSING else ""
            if isinstance(field.default, float):
                default = f"{field.default:g}"
            allowed = ranges.get(key) or {"bool": "`true`, `false`"}.get(str(field.type), "")
            meaning = cited(escaped(described.get(field.name, "")))
            lines.append(f"| `{key}` | `{default}` | {allowed} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def _presets() -> str:
    from chiaroscuro.engine import preset_text, presets

    lines = [
        "# Presets",
        "",
        "Complete settings to train with or to copy and edit: `chiaro train NAME`, "
        "`chiaro preset show NAME`.",
        "",
        "| preset | summary |",
        "|---|---|",
    ]
    lines += [f"| [`{name}`](#{name}) | {escaped(_heading(name))} |" for name in presets()]
    for name in presets():
        lines += ["", f"## {name} {{#{name}}}", "", "```toml", preset_text(name).strip(), "```"]
    return "\n".join(lines) + "\n"


def _heading(name: str) -> str:
    """Return the first sentence of a preset's comment."""
    from chiaroscuro.engine import preset_text

    words = []
    for line in preset_text(name).splitlines():
        if not line.startswith("#"):
            break
        words.append(line.removeprefix("#").strip())
    return re.split(r"(?<=\.)\s", " ".join(words))[0]


# ---- data and files ----


def _layouts() -> str:
    from chiaroscuro import data
    from chiaroscuro.data import find

    lines = ["# Data layouts", "", docstrings.document(data.open_data), "## By ending", ""]
    lines += ["| ending | read by | summary |", "|---|---|---|"]
    for ending, read in find._FILES.items():
        read = inspect.unwrap(read)
        lines.append(f"| `{ending}` | {_linked(read)} | {escaped(summary(read))} |")
    lines += ["", "## As a call", ""]
    lines += ["| call | summary |", "|---|---|"]
    for name, read in find._CALLS.items():
        call = docstrings.signature(name, read).replace("\n", " ").split(" -> ")[0]
        call = re.sub(r"\s+", " ", call).replace("( ", "(").replace(",)", ")").replace("|", "\\|")
        lines.append(f"| `{call}` | {escaped(summary(inspect.unwrap(read)))} |")
    lines += ["", "## Readers", ""]
    seen: list[Any] = []
    for read in (*find._FILES.values(), *find._CALLS.values()):
        read = inspect.unwrap(read)
        if read not in seen and read.__name__ in data.__all__:
            seen.append(read)
            lines.append(f"- {_linked(read)}: {escaped(summary(read))}")
    return "\n".join(lines) + "\n"


def _linked(thing: Any) -> str:
    from chiaroscuro import data

    name = thing.__name__
    return f"[`{name}`](data.md#{name})" if name in data.__all__ else f"`{name}`"


def _formats() -> str:
    from chiaroscuro import artifacts
    from chiaroscuro.artifacts import checkpoints, embeddings, run

    lines = [
        "# File formats",
        "",
        "All files are plain: TOML, JSON, NumPy and safetensors. A file of a newer format is "
        "refused with a sentence; an older one is read.",
        "",
        f"## A run folder (format {run.RUN_FORMAT})",
        "",
        docstrings.document(artifacts.Run),
        "",
        f"## An embeddings file (format {embeddings.EMBEDDINGS_FORMAT})",
        "",
        "An `.npz` with any of the arrays below, never pickled; `layers` are stored as "
        "`layer_<name>`. A bare `.npy` is `h`.",
        "",
        docstrings.document(artifacts.Embeddings),
        "",
        "## Checkpoints",
        "",
        docstrings.document(checkpoints),
    ]
    return "\n".join(lines) + "\n"


# ---- findings ----


def _findings() -> str:
    from chiaroscuro.diagnostics import advice

    lines = [
        "# Findings",
        "",
        "What `chiaro diagnose` can find. Each rule reads the measures, and where it fires it "
        "gives its evidence in numbers, the cause, what to change, and what the next diagnosis "
        "should show. An ellipsis stands for a number of your data. How to read them: "
        "[Reading a diagnosis](../guide/diagnosis.md).",
        "",
        "| finding | fires when |",
        "|---|---|",
    ]
    rules = advice.RULES
    lines += [f"| [`{name}`](#{name}) | {escaped(summary(rule))} |" for name, rule in rules.items()]
    for name, rule in rules.items():
        lines += ["", f"## {name.replace('_', ' ')} {{#{name}}}", "", docstrings.document(rule), ""]
        parts = _finding(rule)
        for key in ("evidence", "cause", "advice", "expect"):
            if parts.get(key):
                lines.append(f"- **{key.capitalize()}:** {escaped(parts[key])}")
        if key := parts.get("paper"):
            lines.append(f"- **Paper:** [{key}](bibliography.md#{key})")
    return "\n".join(lines) + "\n"


def _finding(rule: Any, given: dict[str, ast.AST] | None = None) -> dict[str, str]:
    """Read the sentences of a rule from its source, with an ellipsis for each number.

    Args:
        rule: function that returns a finding, or what a helper with arguments returns.
        given: arguments, by name.
    """
    tree = _source(rule)
    known = _assigned(tree) | (given or {})
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        if getattr(call.func, "id", "") == "Finding":
            return {one.arg: _sentence(one.value, known, rule) for one in call.keywords if one.arg}
    for call in calls:  # the helper that makes the finding
        helper = rule.__globals__.get(getattr(call.func, "id", ""))
        if inspect.isfunction(helper):
            names = inspect.signature(helper).parameters
            return _finding(helper, dict(zip(names, call.args, strict=False)))
    return {}


def _source(function: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _assigned(tree: ast.AST) -> dict[str, ast.AST]:
    """Return what is first assigned to each name."""
    found: dict[str, ast.AST] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, value)
    return found


def _sentence(node: ast.AST, known: dict[str, ast.AST], rule: Any) -> str:
    """Return the text of an expression: the first branch of each choice."""
    of = lambda part: _sentence(part, known, rule)
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(of, parts))
        case ast.FormattedValue(value=ast.Name(id="space")):
            return "h or z"
        case ast.FormattedValue(value=ast.Name(id=name)) if isinstance(
            known.get(name), ast.Constant
        ):
            return of(known[name]) or "…"
        case ast.FormattedValue():
            return "…"
        case ast.BinOp(left=left, right=right):
            return of(left) + of(right)
        case ast.IfExp(body=body):
            return of(body)
        case ast.Name(id=name) if name in known:
            return of(known[name])
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(comma)), attr="join")):
            return comma.join(filter(None, map(of, _listed(node.args[0]))))
        case ast.Call(func=ast.Name(id=name)) if inspect.isfunction(rule.__globals__.get(name)):
            return _returned(rule.__globals__[name])
    return ""


def _listed(node: ast.AST) -> list[ast.expr]:
    """Return the parts of a list or tuple, also of one inside `filter(None, ...)`."""
    while isinstance(node, ast.Call):
        node = node.args[-1]
    return node.elts if isinstance(node, ast.List | ast.Tuple) else []


def _returned(function: Any) -> str:
    """Return the first text that a helper returns."""
    tree = _source(function)
    known = _assigned(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            return _sentence(node.value, known, function)
    return ""


# ---- command line ----


def _commands() -> str:

    from chiaroscuro.cli.arguments import build_parser

    parser, verbs = build_parser()
    lines = ["# Command line", "", escaped(parser.description or ""), ""]
    lines += [
        "Exit status: 0 done; 1 the work failed (a claim fails, a diagnosis cannot be made); "
        "2 the call was wrong; 130 stopped by Ctrl-C.",
        "",
    ]
    choices = _subparsers(parser)
    lines += ["| verb | what it does |", "|---|---|"]
    helps = _helps(parser)
    lines += [f"| [`chiaro {verb}`](#{verb}) | {escaped(helps[verb])} |" for verb in verbs]
    for verb in verbs:
        lines += ["", f"## chiaro {verb} {{#{verb}}}", "", *_verb(choices[verb], helps[verb])]
    return "\n".join(lines) + "\n"


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _helps(parser: argparse.ArgumentParser) -> dict[str, str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {one.dest: one.help or "" for one in action._choices_actions}
    return {}


def _verb(parser: argparse.ArgumentParser, about: str) -> list[str]:
    about = parser.description or about
    lines = [escaped(_capital(about)), ""]
    inner = _subparsers(parser)
    if inner:
        for name, child in inner.items():
            lines += [*_verb(child, _helps(parser)[name])]
        return lines
    formatter = argparse.HelpFormatter(parser.prog, width=84)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    lines += ["```text", formatter.format_help().strip(), "```", ""]
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        name = ", ".join(action.option_strings) or action.metavar or action.dest
        value = f" {action.metavar}" if action.option_strings and action.metavar else ""
        if action.choices and not action.metavar:
            value = " " + "|".join(map(str, action.choices))
        text = (action.help or "") % {"default": action.default, "prog": parser.prog}
        shown = f"{name}{value}".replace("|", "\\|")
        rows.append(f"| `{shown}` | {escaped(_capital(text))} |")
    if rows:
        lines += ["| argument | meaning |", "|---|---|", *rows, ""]
    if parser.epilog:
        lines += ["```text", textwrap.dedent(parser.epilog).strip(), "```", ""]
    return lines


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if text[:1].isalpha() else text


# ---- texts ----


def _bibliography() -> str:
    from chiaroscuro.references import bibliography

    lines = [
        "# Bibliography",
        "",
        "The keys are those that docstrings cite; `chiaro cite OBJECT` prints the BibTeX.",
        "",
    ]
    for key, entry in bibliography().items():
        lines += [f"## {key} {{#{key}}}", "", _reference(entry), ""]
    return "\n".join(lines)


def _reference(entry: str) -> str:
    fields = dict(re.findall(r"^\s*(\w+)\s*=\s*\{(.*?)\},?\s*$", entry, re.MULTILINE))
    plain = {k: re.sub(r"\\.|[{}]", "", v) for k, v in fields.items()}
    authors = [
        " ".join(reversed(one.split(", ", 1))) for one in fields.get("author", "").split(" and ")
    ]
    people = re.sub(r"\\[\"'`^~]?|[{}]", "", ", ".join(authors))
    where = next(
        (plain[k] for k in ("journal", "booktitle", "publisher", "howpublished") if k in plain), ""
    )
    parts = [
        escaped(people),
        f"*{escaped(plain.get('title', ''))}*",
        escaped(where),
        plain.get("year", ""),
    ]
    line = ". ".join(part for part in parts if part) + "."
    if fields.get("archiveprefix", "").lower() == "arxiv":
        line += f" [arXiv:{fields['eprint']}](https://arxiv.org/abs/{fields['eprint']})."
    elif "doi" in fields:
        line += f" [doi:{fields['doi']}](https://doi.org/{fields['doi']})."
    return line


def _file(path: Path) -> str:
    """Return a Markdown file of the repository, with its links made those of the site."""
    text = path.read_text(encoding="utf-8")
    moved = {
        "NOTATION.md": "notation.md",
        "CHANGELOG.md": "changelog.md",
        "README.md": "../index.md",
        "docs/claims.md": "../claims.md",
        "docs/gallery.md": "../gallery.md",
        "docs/verdicts.md": "../verdicts.md",
        "docs/report.md": "../report.md",
        "references.bib": "bibliography.md",
    }

    def link(found: re.Match[str]) -> str:
        target = found[2]
        if target.startswith(("http", "#")):
            return found[0]
        return f"[{found[1]}]({moved[target]})" if target in moved else found[1]

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", link, text)
