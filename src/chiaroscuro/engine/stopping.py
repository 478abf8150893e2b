"""Being asked to stop: Ctrl-C and the signals by which a scheduler ends a job."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["StopRequest", "stop_error", "stop_requests"]

AGAIN = 1.0
"""Seconds after which a Ctrl-C is another one."""

_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class StopRequest:
    """Whether this process was asked to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.first = 0.0

    def note(self, number: int, frame: Any) -> None:
        """Remember a signal; a second Ctrl-C is not waited for.

        A launcher passes on the Ctrl-C that its ranks have seen already: at once is not a second
        time.
        """
        now = time.monotonic()
        if self.signal is None:
            self.signal, self.first = number, now
        elif number == signal.SIGINT and now - self.first > AGAIN:
            raise KeyboardInterrupt


def stop_error(number: int) -> BaseException:
    """Return what to raise once all is saved: the exit status says which signal it was.

    Example:
        >>> stop_error(signal.SIGTERM).code
        143
    """
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Watch for Ctrl-C, SIGTERM and SIGHUP; the handlers that were there come back afterwards.

    A signal that is ignored stays ignored (`nohup`). Signals reach the main thread only: elsewhere
    nothing is watched.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {}
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if number == signal.SIGINT or handler == signal.SIG_DFL:
            before[number] = signal.signal(number, request.note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
