"""Labs of rusak2022: content suppresses style, dimensionality collapse in contrastive learning.

Letters: the paper's latents z are `z1`, `z2` of a `Process`, its z' = f(x) is z here; h = f(g) is
the composition, not a representation; M negatives are m - 1 candidates; d_c and d_s are `content`
and d - `content`; tau divides, content dimensions first.
"""

__all__: list[str] = []
