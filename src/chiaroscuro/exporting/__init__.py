"""Take a trained network elsewhere."""

__all__: list[str] = []
