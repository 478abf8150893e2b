# %% [markdown]
# # Digits from pixels
#
# Learn to recognise handwritten digits without showing the network a single label: train an
# encoder, compare it with raw pixels and the untrained network, and look at what it learned.
#
# The bundled data are *wandering digits*: 1,797 handwritten digits, drawn at a random place, angle,
# size and colour. Raw pixels say little about which digit it is.

# %%
import matplotlib.pyplot as plt
import numpy as np

import chiaroscuro as cs

settings = cs.engine.read_settings("demo")
data = cs.data.open_data(settings.data.source)
data

# %%
fig, axes = plt.subplots(2, 10, figsize=(10, 2.2))
for digit, column in enumerate(axes.T):
    rows = np.flatnonzero(data.labels == digit)[:2]
    for ax, image in zip(column, data[rows]["images"], strict=True):
        ax.imshow(image)
        ax.axis("off")

# %% [markdown]
# ## Train
#
# A positive pair is two drawings of the same handwriting. The objective pulls the two embeddings
# of a pair together and pushes all others of the batch apart. Settings come from the preset
# `demo`: a small residual network, 32 pairs per batch, a temperature of 0.25.

# %%
run = cs.train(settings, "run")
records = [record for record in run.history().records if "epoch" in record]
plt.figure(figsize=(5, 3))
plt.plot([r["epoch"] for r in records], [r["mean_loss"] for r in records])
plt.xlabel("epoch")
_ = plt.ylabel("loss")
# %% [markdown]
# ## Evaluate
#
# Embed everything, and name each held-out digit by its nearest neighbours. An accuracy means little
# on its own, so the same measurement is taken on raw pixels and on the untrained network.

# %%
embeddings = cs.embed(run)
results = cs.diagnostics.evaluate(embeddings, probes=["ridge"])
print(cs.diagnostics.table(results))

# %% [markdown]
# ## Look at it
#
# A two-dimensional map of held-out digits, before and after training. Each colour is a digit; the
# network never saw one.

# %%
from sklearn.manifold import TSNE

test = embeddings.split == 1
some = np.flatnonzero(test)[:700]
pixels = data[some]["images"].reshape(len(some), -1) / 255.0
fig, axes = plt.subplots(1, 2, figsize=(9, 4.2))
for ax, x, title in zip(axes, (pixels, embeddings.h[some]), ("pixels", "embedding"), strict=True):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    place = TSNE(random_state=0, init="pca", perplexity=30).fit_transform(x)
    ax.scatter(*place.T, c=embeddings.labels[some], cmap="tab10", s=6)
    ax.set_title(title)
    ax.set_axis_off()

# %% [markdown]
# ## Next
#
# `chiaro demo` runs the same training and writes a page to explore.
# [Reading a diagnosis](../guide/diagnosis.md) explains what else can be measured, and
# [your own images](../guide/images.md) how to do this with a folder of photographs.
