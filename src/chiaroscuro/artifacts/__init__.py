"""Artifacts: what is left on disk, as plain files that open without our code. No torch here."""

from chiaroscuro.artifacts import checkpoints
from chiaroscuro.artifacts.checkpoints import Checkpoint
from chiaroscuro.artifacts.embeddings import Embeddings
from chiaroscuro.artifacts.locks import one_writer
from chiaroscuro.artifacts.run import History, Run, environment
from chiaroscuro.artifacts.toml import to_toml

__all__ = [
    "Checkpoint",
    "Embeddings",
    "History",
    "Run",
    "checkpoints",
    "environment",
    "one_writer",
    "to_toml",
]
