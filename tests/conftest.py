"""Tests of optional packages run in an environment of their own: `make test-extras`."""

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# the machine may be busy: no examples are refused because they took long
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# the module to import for each extra of pyproject.toml, where the two differ
MODULES = {
    "maps": "openTSNE",
    "parquet": "pyarrow",
    "word2vec": "gensim",
    "onnx": "onnxruntime",
    "notebook": "pandas",
    "jpeg": "simplejpeg",
}


def pytest_addoption(parser):
    parser.addoption("--extras", action="store_true", help="only tests of optional packages")


def extras_of(item) -> list[str]:
    """The extras of pyproject.toml that a test needs."""
    return [name for mark in item.iter_markers("extra") for name in mark.args]


def not_installed() -> list[str]:
    """The extras that could not be installed in this environment, as `make test-extras` noted."""
    file = Path(sys.prefix) / "missing-extras.txt"
    return file.read_text().split() if file.is_file() else []


def pytest_configure(config):
    if config.getoption("--extras"):
        declare_torchvision_operators()


def declare_torchvision_operators() -> None:
    """Let a torchvision that was built for CUDA be imported beside a torch without it.

    Its compiled operators do not load then. It registers two of them at import, which no model
    here calls; their signatures are enough.
    """
    import torch

    try:
        import torchvision  # noqa: F401
    except (ModuleNotFoundError, RuntimeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{name}", signature)


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--extras"):
        for item in items:
            if extras := extras_of(item):
                reason = f"needs {', '.join(extras)}: `make test-extras`"
                item.add_marker(pytest.mark.skip(reason=reason))
        return
    chosen, others, missing = [], [], set(not_installed())
    for item in items:
        extras = extras_of(item)
        (chosen if extras else others).append(item)
        for extra in extras:
            module = MODULES.get(extra, extra)
            if extra in missing:
                item.add_marker(pytest.mark.skip(reason=f"{extra} cannot be installed here"))
            elif importlib.util.find_spec(module) is None:
                raise pytest.UsageError(
                    f"`--extras` needs every extra; `{module}` of `{extra}` is not installed: "
                    "`make test-extras` installs them."
                )
        # warnings of other packages are theirs; our own stay errors
        item.add_marker(pytest.mark.filterwarnings("ignore::Warning:(?!chiaroscuro)"))
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--extras"):
        names = ", ".join(not_installed()) or "none"
        terminalreporter.write_line(f"extras that cannot be installed here: {names}")
