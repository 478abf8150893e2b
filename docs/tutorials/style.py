# %% [markdown]
# # Content and style with a known process
#
# Draw data from a process whose latent factors are known, train on them, and measure how much of
# each factor survives in the embedding.
#
# *Content* is what the two views of a pair share; *style* is what differs between them. Theory says
# that contrastive learning keeps content and suppresses style. With a known process this can be
# measured factor by factor, before and after the projector.

# %%
import matplotlib.pyplot as plt
import numpy as np

import chiaroscuro as cs
from chiaroscuro.data import Box, LeakyMLP, Normal, Process

style = Normal((0.1, 0.3, 1.0))  # how far a pair differs, in each of three dimensions of style
process = Process(Box(5), content=2, style=style, mixing=LeakyMLP(5), n=4000)
process.factor_names

# %% [markdown]
# The network sees only the mixed observations, five numbers that are an invertible function of the
# five latents. A pair has the same content and a style drawn around the first one.

# %%
encoder = "MLP(d_in=5, d=32, depth=4, width=64, activation='leaky_relu', init='orthogonal')"
settings = cs.engine.read_settings(
    "process", [f"data.source={process!r}", f"network.encoder={encoder}", "epochs=12"]
)
run = cs.train(settings, "run")

# %% [markdown]
# ## What survived?
#
# A regression on held-out samples predicts every factor from the input $x$, the representation $h$
# and the projection $z$. A value of 1 means that the factor is fully readable, 0 that it is not
# readable beyond chance.

# %%
seen = cs.embed(run, process.dataset().part("test"))
truth = dict(zip(process.factor_names, seen.factors.T, strict=True))
layers = {"x": seen.layers["input"], "h": seen.h, "z": seen.z}
survived = cs.diagnostics.survival(layers, truth, style=process.factor_names[2:])
print(survived)

# %%
lines = [line.split() for line in str(survived).splitlines()]
names, rows = lines[0][2:], lines[1:]
fig, ax = plt.subplots(figsize=(6.4, 3.2))
for at, (layer, *values) in enumerate(rows):
    ax.bar(np.arange(len(names)) + 0.25 * (at - 1), np.array(values, float), 0.25, label=layer)
ax.set_xticks(range(len(names)), names)
ax.set_ylabel("$R^2$, held out")
_ = ax.legend()

# %% [markdown]
# The stronger a style dimension varies inside a pair, the less of it is left after the projector.
# The paper behind this, claim by claim: [Content suppresses style](../papers/rusak2022.md).
