"""Models: encoders and projectors whose output dimension is known, and what is done with them."""

from chiaroscuro.models.adapter import Adapter, from_timm, from_torchvision, from_transformers
from chiaroscuro.models.describe import Description, describe
from chiaroscuro.models.features import features
from chiaroscuro.models.foreign import load_foreign
from chiaroscuro.models.mlp import MLP
from chiaroscuro.models.model import Model
from chiaroscuro.models.momentum import Momentum
from chiaroscuro.models.packing import pack, unpack
from chiaroscuro.models.projector import Projector
from chiaroscuro.models.prototypes import Prototypes
from chiaroscuro.models.resnet import ResNet
from chiaroscuro.models.sequence import SequenceTransformer
from chiaroscuro.models.series import SeriesNet
from chiaroscuro.models.table import Table
from chiaroscuro.models.vit import ViT
from chiaroscuro.models.weights import Match, from_weights, load_weights, without_weights

__all__ = [
    "MLP",
    "Adapter",
    "Description",
    "Match",
    "Model",
    "Momentum",
    "Projector",
    "Prototypes",
    "ResNet",
    "SequenceTransformer",
    "SeriesNet",
    "Table",
    "ViT",
    "describe",
    "features",
    "from_timm",
    "from_torchvision",
    "from_transformers",
    "from_weights",
    "load_foreign",
    "load_weights",
    "pack",
    "unpack",
    "without_weights",
]
