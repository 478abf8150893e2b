"""The command line: parse the words, call one public function, print where the result went.

Exit status: 0 done, 1 the work failed, 2 the call was wrong, 130 stopped by Ctrl-C. A wrong call
prints one sentence on standard error. Nothing heavy is imported before a verb needs it.
"""

import os
import sys
from collections.abc import Sequence

from chiaroscuro.cli.arguments import build_parser
from chiaroscuro.errors import ChiaroError, InputError

__all__ = ["main"]


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
    parser, verbs = build_parser()
    if not argv:
        raise InputError(f"`chiaro` needs a command: {', '.join(verbs)}; see `chiaro --help`.")
    if not argv[0].startswith("-") and argv[0] not in verbs:
        raise InputError(f"`chiaro {argv[0]}` is not a command{_nearest(argv[0], verbs)}")
    try:
        call = parser.parse_args(argv)
    except SystemExit as stop:  # --help and --version have printed
        return int(stop.code or 0)
    return call.verb(call)


def _nearest(word: str, verbs: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, verbs, n=1)
    return f"; did you mean `chiaro {close[0]}`?" if close else f"; there are {', '.join(verbs)}."
