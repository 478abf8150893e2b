"""Data: arrays, images, text and pairs behind one table, read in batches; and the order of
samples.

Example:
    >>> from chiaroscuro import data
    >>> digits = data.open_data("digits")
    >>> order = data.Order(n=len(digits), batch=128)
    >>> digits[order.indices(epoch=0, batch=0)]["images"].shape
    (128, 32, 32, 3)
"""

from chiaroscuro.data.addresses import absolute_source, as_call, is_source
from chiaroscuro.data.arrays import from_arrays, read_arrays
from chiaroscuro.data.cifar import read_cifar
from chiaroscuro.data.corpus import Corpus, Synonyms, read_corpus, read_synonyms
from chiaroscuro.data.counter import uniforms, words
from chiaroscuro.data.dataset import NEGATIVES, SPLITS, Column, Dataset, Skipped, Source
from chiaroscuro.data.digits import WanderingDigits
from chiaroscuro.data.download import OFFICIAL, get
from chiaroscuro.data.emoji import read_emoji
from chiaroscuro.data.find import Available, available, is_data, layouts, open_data
from chiaroscuro.data.folders import read_folder
from chiaroscuro.data.laws import (
    Delta,
    GeneralisedNormal,
    Laplace,
    Law,
    Normal,
    Uniform,
    VonMisesFisher,
)
from chiaroscuro.data.mixings import LeakyMLP, Linear, Mixing, Orthogonal
from chiaroscuro.data.mnist import read_mnist
from chiaroscuro.data.objects import SECOND, from_object, holds_files
from chiaroscuro.data.order import BlockOrder, Blocks, Order, order_of
from chiaroscuro.data.pairs import read_pairs
from chiaroscuro.data.pictures import decode
from chiaroscuro.data.processes import Process, Sample
from chiaroscuro.data.scaling import Scaling
from chiaroscuro.data.spaces import Box, Euclidean, Space, Sphere
from chiaroscuro.data.symbols import SymbolTask
from chiaroscuro.data.tables import (
    from_frame,
    from_hugging_face,
    read_csv,
    read_feather,
    read_hugging_face,
    read_parquet,
)
from chiaroscuro.data.tars import read_tar, tar_samples, write_tars
from chiaroscuro.data.tasks import contrastive_mod_add, mod_add, modular_addition
from chiaroscuro.data.text import read_text
from chiaroscuro.data.tinyimagenet import read_tiny_imagenet
from chiaroscuro.data.tokenizers import Tokenizer

__all__ = [
    "NEGATIVES",
    "OFFICIAL",
    "SECOND",
    "SPLITS",
    "Available",
    "BlockOrder",
    "Blocks",
    "Box",
    "Column",
    "Corpus",
    "Dataset",
    "Delta",
    "Euclidean",
    "GeneralisedNormal",
    "Laplace",
    "Law",
    "LeakyMLP",
    "Linear",
    "Mixing",
    "Normal",
    "Order",
    "Orthogonal",
    "Process",
    "Sample",
    "Scaling",
    "Skipped",
    "Source",
    "Space",
    "Sphere",
    "SymbolTask",
    "Synonyms",
    "Tokenizer",
    "Uniform",
    "VonMisesFisher",
    "WanderingDigits",
    "absolute_source",
    "as_call",
    "available",
    "contrastive_mod_add",
    "decode",
    "from_arrays",
    "from_frame",
    "from_hugging_face",
    "from_object",
    "get",
    "holds_files",
    "is_data",
    "is_source",
    "layouts",
    "mod_add",
    "modular_addition",
    "open_data",
    "order_of",
    "read_arrays",
    "read_cifar",
    "read_corpus",
    "read_csv",
    "read_emoji",
    "read_feather",
    "read_folder",
    "read_hugging_face",
    "read_mnist",
    "read_pairs",
    "read_parquet",
    "read_synonyms",
    "read_tar",
    "read_text",
    "read_tiny_imagenet",
    "tar_samples",
    "uniforms",
    "words",
    "write_tars",
]
