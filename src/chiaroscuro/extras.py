"""Import libraries that only some calls need, with a sentence where they are missing."""

from __future__ import annotations

import importlib
import re
from typing import Any

from chiaroscuro.errors import ChiaroError, install_command

__all__ = ["bring"]


def bring(module: str, what: str, install: str) -> Any:
    """Return the module, or raise a sentence that says what to install for `what`.

    Example:
        >>> bring("json", "JSON", "python").loads("[1]")
        [1]
        >>> bring("no_such_module", "Reading parquet", "'chiaroscuro[parquet]'")
        Traceback (most recent call last):
        ...
        chiaroscuro.errors.ChiaroError: Reading parquet needs `no_such_module`, which is not
        installed here: `pip install ...[parquet]'`.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != library:
            raise  # something that the library itself lacks
        ours = re.fullmatch(r"'chiaroscuro\[(\w+)\]'", install)
        command = install_command(ours[1]) if ours else f"pip install {install}"
        raise ChiaroError(
            f"{what} needs `{library}`, which is not installed here: `{command}`."
        ) from None
