# %% [markdown]
# # A map of images in two dimensions
#
# Train an encoder that ends in the plane, with a heavy-tailed kernel: a map of images to which new
# images can be added, unlike t-SNE.
#
# With a Cauchy kernel $k(z, w) = 1 / (1 + |z - w|^2 / \tau)$, InfoNCE in two dimensions does what
# t-SNE does for points, but for images and their augmentations, and with a network that can embed
# images it has not seen.

# %%
import matplotlib.pyplot as plt
import numpy as np

import chiaroscuro as cs

settings = cs.engine.read_settings(
    "digits",
    [
        "epochs=24",
        "objective='InfoNCE(kernel=Cauchy(tau=1.0))'",
        "network.projector=\"Projector(d=2, depth=2, width=128, last='none')\"",
    ],
)
run = cs.train(settings, "run")

# %% [markdown]
# ## The map
#
# Held-out digits, in colours the network never saw.

# %%
embeddings = cs.embed(run)
test = embeddings.split == 1
z, labels = embeddings.z[test], embeddings.labels[test]
fig, ax = plt.subplots(figsize=(6.5, 5.5))
dots = ax.scatter(*z.T, c=labels, cmap="tab10", s=6)
ax.legend(*dots.legend_elements(), title="digit", loc="center left", bbox_to_anchor=(1, 0.5))
ax.set_axis_off()

# %%
accuracy = cs.diagnostics.knn_leave_one_out(z - z.mean(0), labels)
print(f"neighbours on the map name {100 * accuracy:.1f} % of held-out digits")

# %% [markdown]
# ## With images in place of dots

# %%
from matplotlib.offsetbox import AnnotationBbox, OffsetImage

images = cs.data.open_data(settings.data.source)[np.flatnonzero(test)]["images"]
draw = np.random.default_rng(0).choice(len(z), 220, replace=False)
fig, ax = plt.subplots(figsize=(8, 7))
ax.scatter(*z[draw].T, s=0)
for at in draw:
    ax.add_artist(AnnotationBbox(OffsetImage(images[at], zoom=0.5), z[at], frameon=False))
ax.set_axis_off()
