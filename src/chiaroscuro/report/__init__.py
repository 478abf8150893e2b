"""The report: one page that shows what a model learnt, as a file or live. No torch here.

`chiaroscuro.report` is this room, and can be called: `cs.report(run, "page.html")`.
"""

import sys
import types
from typing import Any

from chiaroscuro.report.document import document
from chiaroscuro.report.page import page, report
from chiaroscuro.report.reading import diagnosis_of, subjects
from chiaroscuro.report.server import view

__all__ = ["diagnosis_of", "document", "page", "report", "subjects", "view"]


class _Room(types.ModuleType):
    """A room whose name at the door is also its one function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return report(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
