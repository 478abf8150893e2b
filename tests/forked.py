"""Processes of their own, forked from one that has imported torch once for all of them."""

import multiprocessing
import os
import runpy
import socket
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["CONTEXT", "Done", "run"]

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "chiaroscuro.engine", "chiaroscuro.cli"])


class Done(NamedTuple):
    """How processes ended, and what they wrote."""

    codes: list[int | None]
    out: str
    err: str


def run(script: Path, *words: str, world: int = 1, seconds: float = 300) -> Done:
    """Run a script in a process of its own; in several, they find each other as ranks do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = [[script.with_suffix(f".{kind}-{me}") for kind in ("out", "err")] for me in range(world)]
    processes = [
        CONTEXT.Process(target=_inside, args=(me, world, port, script, words, told[me]))
        for me in range(world)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(seconds)
        texts = ("".join(path.read_text() for path in paths) for paths in zip(*told, strict=True))
        return Done([process.exitcode for process in processes], *texts)
    finally:
        for process in processes:
            process.kill()


def _inside(me: int, world: int, port: int, script: Path, words: tuple, told: list[Path]) -> None:
    for number, path in enumerate(told, start=1):
        with open(path, "wb") as file:
            os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    if world > 1:
        rank = {"RANK": me, "LOCAL_RANK": me, "WORLD_SIZE": world, "MASTER_PORT": port}
        os.environ.update({name: str(number) for name, number in rank.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    sys.argv = [str(script), *words]
    runpy.run_path(str(script), run_name="__main__")
