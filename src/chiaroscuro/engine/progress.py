"""A line about how training goes: renewed in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TextIO

__all__ = ["Progress", "duration"]


class Progress:
    """Writes loss, speed, measures and time left, to a terminal or to a file.

    Args:
        stream: where to; None says nothing.
        steps: of the whole training.
        start: the step at which this process begins.
        batch: samples of a step, all ranks together.
    """

    def __init__(self, stream: TextIO | None, steps: int, start: int, batch: int):
        self.stream, self.steps, self.start, self.batch = stream, steps, start, batch
        self.live = stream is not None and stream.isatty()
        self.began = self.shown = time.perf_counter()
        self.away = 0.0

    @property
    def seconds(self) -> float:
        """Time spent training, measures and checkpoints left out."""
        return time.perf_counter() - self.began - self.away

    def rate(self, step: int) -> float:
        """Samples per second since this process began."""
        return (step - self.start) * self.batch / max(self.seconds, 1e-9)

    def step(self, step: int, epoch: int, loss: float) -> None:
        """After a step; on a terminal the line is renewed five times a second at most."""
        now = time.perf_counter()
        if self.live and now - self.shown > 0.2:
            self.shown = now
            self._write("\r\x1b[K" + self._line(step, epoch, loss, {}), "")

    def epoch(self, step: int, epoch: int, loss: float, measures: Mapping[str, float]) -> None:
        """After an epoch, with what the callbacks measured."""
        self._write(("\r\x1b[K" * self.live) + self._line(step, epoch, loss, measures), "\n")

    def say(self, sentence: str) -> None:
        """A sentence on a line of its own."""
        self._write(("\r\x1b[K" * self.live) + sentence, "\n")

    def _line(self, step: int, epoch: int, loss: float, measures: Mapping[str, float]) -> str:
        rate = self.rate(step)
        left = (self.steps - step) * self.batch / max(rate, 1e-9)
        parts = [f"epoch {epoch + 1}", f"step {step}/{self.steps}", f"loss {loss:.4f}"]
        parts += [f"{rate:,.0f} images/s"]
        parts += [f"{name} {value:.3f}" for name, value in measures.items()]
        return ", ".join([*parts, f"{duration(left)} left"])

    def _write(self, text: str, end: str) -> None:
        if self.stream is not None:
            print(text, end=end, file=self.stream, flush=True)


def duration(seconds: float) -> str:
    """Seconds for people.

    Example:
        >>> duration(59), duration(61), duration(7322)
        ('59 s', '1 min 01 s', '2 h 02 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
