"""Networks: functions of weights and inputs, with a layout of their weights."""

from tunbridge.model.networks.cast import Cast
from tunbridge.model.networks.equinox import from_equinox
from tunbridge.model.networks.flax import from_flax
from tunbridge.model.networks.functions import from_functions
from tunbridge.model.networks.keras import from_keras
from tunbridge.model.networks.layout import Leaf
from tunbridge.model.networks.lenet import LeNet5
from tunbridge.model.networks.mlp import MLP
from tunbridge.model.networks.module import from_module
from tunbridge.model.networks.offset import Offset
from tunbridge.model.networks.recurrent import CNNLSTM
from tunbridge.model.networks.resnet import ResNet20
from tunbridge.model.networks.symmetries import aligned, canonical
from tunbridge.model.networks.torch import from_torch
from tunbridge.model.networks.vgg import VGG

__all__ = [
    "CNNLSTM",
    "MLP",
    "VGG",
    "Cast",
    "LeNet5",
    "Leaf",
    "Offset",
    "ResNet20",
    "aligned",
    "canonical",
    "from_equinox",
    "from_flax",
    "from_functions",
    "from_keras",
    "from_module",
    "from_torch",
]
