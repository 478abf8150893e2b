"""What embeddings mean: factors, classes, clusters, texts and contexts."""

__all__: list[str] = []
