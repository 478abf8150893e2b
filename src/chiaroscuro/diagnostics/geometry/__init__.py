"""Geometry of views, projector and loss: what moves, what is dropped, what repels."""

__all__: list[str] = []
