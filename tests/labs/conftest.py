"""Figures of labs, drawn once and small."""

import pytest

from chiaroscuro.labs import style


@pytest.fixture
def sketched(monkeypatch):
    """Lay a figure out and draw it, in one format of few dots: `save` itself is tested apart."""

    def save(figure, stem):
        path = stem.with_name(f"{stem.name}.png")
        figure.savefig(path, dpi=50)
        return [path]

    monkeypatch.setattr(style, "save", save)
