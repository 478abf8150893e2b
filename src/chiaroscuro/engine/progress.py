"""How training goes: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

__all__ = ["Progress", "duration"]

OFTEN = 0.2
"""Seconds between two looks of the bar."""
QUIET = 1.0
"""Seconds between the lines of epochs in which nothing was measured, where there is no terminal."""
SILENT = 20.0
"""Seconds after which a line is written where there is no terminal, in the middle of an epoch."""


class Progress:
    """Shows loss, speed, measures and time left, on a terminal or in a file.

    To be entered with `with`, which leaves the terminal as it was.

    Args:
        stream: where to; None says nothing.
        steps: steps of the whole training.
        start: the step at which this process begins.
        batch: samples of a step, all ranks together.

    Example:
        >>> import sys
        >>> with Progress(sys.stdout, steps=10, start=0, batch=4) as shown:
        ...     shown.epoch(5, epoch=0, loss=1.25, measures={"online_knn": 0.5})
        epoch 1, step 5/10, loss 1.2500, ... samples/s, online_knn 0.500, ... left
    """

    def __init__(self, stream: TextIO | None, steps: int, start: int, batch: int):
        self.stream, self.steps, self.start, self.batch = stream, steps, start, batch
        self.bar: Any = _bar(stream, steps) if stream is not None and stream.isatty() else None
        self.measures: dict[str, float] = {}
        self.began = self.shown = time.perf_counter()
        self.away = 0.0
        self.left: float | None = None

    def __enter__(self) -> Progress:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    # ---- time ----

    @property
    def seconds(self) -> float:
        """Time spent training, measures and checkpoints left out."""
        now = time.perf_counter() if self.left is None else self.left
        return now - self.began - self.away

    def rate(self, step: int) -> float:
        """Samples per second since this process began."""
        return (step - self.start) * self.batch / max(self.seconds, 1e-9)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside is not training."""
        self.left = time.perf_counter()
        yield
        self.away += time.perf_counter() - self.left
        self.left = None

    # ---- showing ----

    def step(self, step: int, epoch: int, loss: float) -> None:
        """After a step."""
        now = time.perf_counter()
        if self.bar is not None and (now - self.shown > OFTEN or step == self.steps):
            self.shown = now
            self._renew(step, epoch, loss)
        elif self.bar is None and self.stream is not None and now - self.shown > SILENT:
            self.shown = now
            self.say(", ".join(self._parts(step, epoch, loss, {})))

    def epoch(self, step: int, epoch: int, loss: float, measures: Mapping[str, float]) -> None:
        """After an epoch; a line remains of those in which something was measured.

        Without a terminal also of the first, of the last, and of others a second apart: a hundred
        short epochs are not a hundred lines.
        """
        self.measures |= measures
        now = time.perf_counter()
        if self.bar is not None:
            self.shown = now
            self._renew(step, epoch, loss)
        ends = epoch == 0 or step == self.steps
        due = self.bar is None and (ends or now - self.shown >= QUIET)
        if due or measures:
            self.shown = now
            self.say(", ".join(self._parts(step, epoch, loss, measures)))

    def say(self, sentence: str) -> None:
        """A sentence on a line of its own."""
        if self.bar is not None:
            self.bar.console.print(sentence, markup=False, highlight=False)
        elif self.stream is not None:
            print(sentence, file=self.stream, flush=True)

    def _renew(self, step: int, epoch: int, loss: float) -> None:
        first, _, *rest = self._parts(step, epoch, loss, self.measures)
        task = self.bar.task_ids[0]
        self.bar.update(task, completed=step, description=first, said=", ".join(rest), refresh=True)

    def _parts(
        self, step: int, epoch: int, loss: float, measures: Mapping[str, float]
    ) -> list[str]:
        rate = self.rate(step)
        left = (self.steps - step) * self.batch / max(rate, 1e-9)
        return [
            *(f"epoch {epoch + 1}", f"step {step}/{self.steps}", f"loss {loss:.4f}"),
            f"{rate:,.0f} samples/s",
            *(f"{name} {value:.3f}" for name, value in measures.items()),
            f"{duration(left)} left",
        ]


def _bar(stream: TextIO, steps: int) -> Any:
    """One line: epoch, bar, step, and what there is to say. It is renewed without a thread."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
        console=Console(file=stream),
        auto_refresh=False,
    )
    bar.add_task("epoch 1", total=steps, said="")
    return bar


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
