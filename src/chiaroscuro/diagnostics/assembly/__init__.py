"""`diagnose` and `evaluate`: read the arrays, take the measures, say what they mean."""

__all__: list[str] = []
