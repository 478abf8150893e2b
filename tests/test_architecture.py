"""Who may import whom, read from the source with `ast`; and what no source file may contain."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "chiaroscuro"

DOOR = "chiaroscuro"  # the public door, as a name that can be imported
BASE = {"errors", "numerics", "spec", "extras", "display"}
EVERYTHING = None

# Each room with the rooms it may import (itself always). Low to high; a room may not climb.
ALLOWED: dict[str, set[str] | None] = {
    "errors": set(),
    "numerics": {"errors"},
    "spec": {"errors"},
    "measures": {"errors"},
    "extras": {"errors"},
    "display": set(),
    "figures": {"errors", "extras"},
    "references": {"errors", "spec"},
    "artifacts": {"errors", "spec", "extras", "display", "figures"},
    "data": BASE | {"artifacts", "figures"},
    "views": BASE,
    "models": BASE | {"artifacts"},
    "kernels": BASE,
    "pairwise": BASE | {"kernels"},
    "objectives": BASE | {"kernels", "pairwise"},
    "graphs": BASE | {"measures", "kernels", "pairwise", "objectives"},
    "dynamics": BASE | {"kernels", "pairwise", "objectives"},
    "diagnostics": BASE
    | {"measures", "kernels", "pairwise", "graphs", "dynamics", "artifacts", "figures"},
    "engine": BASE | {"data", "views", "models", "kernels", "pairwise", "objectives", "artifacts"},
    "tuning": BASE | {"data", "artifacts", "diagnostics", "engine", "figures"},
    "exporting": (
        BASE | {"data", "views", "models", "artifacts", "diagnostics", "engine", "references"}
    ),
    "finetuning": (
        BASE
        | {"data", "views", "models", "artifacts", "diagnostics", "engine", "exporting", "figures"}
    ),
    "mining": {"errors", "artifacts", "data", "measures", "engine", "extras"},
    "report": {"errors", "spec", "artifacts", "measures"},
    "verbs": {"errors", "artifacts", "data", "diagnostics", "engine", "report", DOOR},
    "labs": {DOOR},
    "demo": {DOOR},
    "cli": EVERYTHING,
    "__main__": EVERYTHING,
    "__init__": EVERYTHING,
}
TORCH_FREE = {
    "errors",
    "spec",
    "extras",
    "display",
    "figures",
    "references",
    "artifacts",
    "measures",
    "report",
}
COMMUNICATES = ("engine/distributed.py", "engine/sharding.py")  # messages, and FSDP
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}


def modules(root: Path) -> Iterator[tuple[str, str, ast.Module]]:
    """Each source file's path under the root, its room and its syntax tree."""
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        yield inside.as_posix(), inside.parts[0].removesuffix(".py"), parsed(path.read_text())


parsed = cache(ast.parse)


def imported(file: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every absolute dotted name a file imports, at any depth, with its line."""
    package = ["chiaroscuro", *file.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def climbs(root: Path) -> list[str]:
    """One sentence for each import that a room may not make."""
    wrong = []
    for file, room, tree in modules(root):
        if room not in ALLOWED:
            wrong.append(f"{file}: `{room}` is not a room of the house; see ALLOWED")
            continue
        allowed = ALLOWED[room]
        for line, name in imported(file, tree):
            first, *rest = name.split(".")
            if first == "torch" and room in TORCH_FREE:
                wrong.append(f"{file}:{line}: `{room}` works without torch")
            if first != "chiaroscuro" or allowed is EVERYTHING:
                continue
            # `from chiaroscuro import Gaussian` is the door; `... import kernels` is the room
            target = rest[0] if rest and rest[0] in ALLOWED else DOOR
            # to those who see only the door, a room it opens is part of it: `cs.kernels`
            at_door = DOOR in allowed and len(rest) <= 1
            if target != room and target not in allowed and not at_door:
                wrong.append(f"{file}:{line}: `{room}` may not import `{name}`")
    return wrong


def faults(root: Path) -> list[str]:
    """One sentence for each thing that no source file may contain."""
    wrong = []
    for file, _, tree in modules(root):
        if Path(file).stem in VAGUE:
            wrong.append(f"{file}: name it after what it does")
        names = {name for _, name in imported(file, tree)}
        spoken = {
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr == "distributed"
        }
        if file not in COMMUNICATES and any(
            name == "torch.distributed" or name.startswith("torch.distributed.")
            for name in names | spoken
        ):
            wrong.append(f"{file}: only {COMMUNICATES[0]} communicates")
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                wrong.append(f"{file}:{node.lineno}: `assert` vanishes under -O; use `need`")
            if isinstance(node, ast.ExceptHandler) and _swallows(node):
                wrong.append(f"{file}:{node.lineno}: an error is swallowed")
    for folder in sorted({path.parent for path in root.rglob("*.py")}):
        door = folder / "__init__.py"
        if not (door.is_file() and "__all__" in _assigned(parsed(door.read_text()))):
            wrong.append(f"{folder.relative_to(root)}: needs an `__init__.py` with `__all__`")
    return wrong


def _swallows(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    silent = all(isinstance(line, ast.Pass | ast.Continue) for line in handler.body)
    return silent and ast.unparse(handler.type) in ("Exception", "BaseException")


def _assigned(tree: ast.Module) -> set[str]:
    targets = [
        target
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def test_no_import_climbs():
    assert climbs(SRC) == []


def test_no_source_file_holds_what_none_may():
    assert faults(SRC) == []


def test_the_table_of_rooms_climbs_nowhere():
    order = list(ALLOWED)
    for room, allowed in ALLOWED.items():
        for below in (allowed or set()) - {DOOR}:
            assert order.index(below) < order.index(room), (room, below)


def test_the_door_opens_without_torch():
    code = "import sys, chiaroscuro; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_everything_at_the_door_is_there():
    import chiaroscuro

    for name in chiaroscuro.__all__:
        assert getattr(chiaroscuro, name) is not None
        assert name in dir(chiaroscuro)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        chiaroscuro.nonsense  # noqa: B018


# ---- the checker itself ----


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    for door in root.rglob("__init__.py"):
        if "__all__" not in door.read_text():
            door.write_text(f"{door.read_text()}\n__all__ = []\n")
    if not (root / "__init__.py").exists():
        (root / "__init__.py").write_text("__all__ = []\n")
    return root


CLIMBS = {
    "a room above": ("kernels/a.py", "from chiaroscuro.objectives import InfoNCE"),
    "a module above": ("kernels/a.py", "import chiaroscuro.engine.loop"),
    "inside a function": ("kernels/a.py", "def f():\n    from chiaroscuro import engine"),
    "for types only": ("pairwise/a.py", "if TYPE_CHECKING:\n    import chiaroscuro.objectives"),
    "relatively": ("kernels/a.py", "from ..pairwise import tiles"),
    "relatively by name": ("kernels/a.py", "from .. import pairwise"),
    "through the door": ("kernels/a.py", "from chiaroscuro import InfoNCE"),
    "the door itself": ("spec.py", "import chiaroscuro"),
    "diagnosis of objectives": ("diagnostics/a.py", "import chiaroscuro.objectives"),
    "a lab through the back": ("labs/x2025/a.py", "from chiaroscuro.kernels import Gaussian"),
    "a lab past a room": ("labs/x2025/a.py", "import chiaroscuro.kernels.gaussian"),
    "torch in a report": ("report/a.py", "import torch"),
    "torch in a function": ("artifacts/a.py", "def f():\n    from torch import nn"),
    "an unknown room": ("attic.py", "import os"),
}
FAULTS = {
    "a vague name": ("kernels/utils.py", ""),
    "a second communicator": ("objectives/a.py", "import torch.distributed as dist"),
    "a third": ("objectives/a.py", "from torch import distributed"),
    "a fourth": ("objectives/a.py", "import torch\ntorch.distributed.all_reduce(x)"),
    "an assert": ("kernels/a.py", "def f(x):\n    assert x"),
    "a bare except": ("kernels/a.py", "try:\n    f()\nexcept:\n    raise"),
    "a swallowed error": ("kernels/a.py", "try:\n    f()\nexcept Exception:\n    pass"),
}
FINE = {
    "kernels/a.py": "from chiaroscuro.numerics import f\nfrom .b import g\nimport torch",
    "kernels/b.py": "from chiaroscuro import errors\nfrom ..spec import notation",
    "objectives/a.py": "from chiaroscuro.pairwise.tiles import h",
    "objectives/b.py": "try:\n    f()\nexcept OSError:\n    pass",
    "engine/distributed.py": "import torch.distributed as dist",
    "labs/x2025/a.py": "import chiaroscuro as cs\nfrom chiaroscuro import Gaussian, kernels",
    "cli.py": "def f():\n    from chiaroscuro.engine import loop",
}


def test_a_house_in_order_passes(tmp_path):
    root = plant(tmp_path, FINE)
    assert climbs(root) == []
    assert faults(root) == []


@pytest.mark.parametrize(("file", "text"), CLIMBS.values(), ids=CLIMBS)
def test_a_planted_climb_is_caught(tmp_path, file, text):
    found = climbs(plant(tmp_path, {**FINE, file: text}))
    assert len(found) == 1
    assert found[0].startswith(file)


@pytest.mark.parametrize(("file", "text"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_caught(tmp_path, file, text):
    found = faults(plant(tmp_path, {**FINE, file: text}))
    assert len(found) == 1
    assert found[0].startswith(file)


def test_a_folder_without_a_door_is_caught(tmp_path):
    root = plant(tmp_path, FINE)
    (root / "kernels" / "__init__.py").write_text("")
    assert faults(root) == ["kernels: needs an `__init__.py` with `__all__`"]
