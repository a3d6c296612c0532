"""Networks: functions of weights and inputs, with a layout of their weights."""

from tunbridge.model.networks.architectures.cast import Cast as Cast
from tunbridge.model.networks.adapters.equinox import from_equinox as from_equinox
from tunbridge.model.networks.adapters.flax import from_flax as from_flax
from tunbridge.model.networks.adapters.functions import from_functions as from_functions
from tunbridge.model.networks.adapters.keras import from_keras as from_keras
from tunbridge.model.networks.layout import Leaf as Leaf
from tunbridge.model.networks.architectures.lenet import LeNet5 as LeNet5
from tunbridge.model.networks.architectures.mlp import MLP as MLP
from tunbridge.model.networks.adapters.module import from_module as from_module
from tunbridge.model.networks.architectures.offset import Offset as Offset
from tunbridge.model.networks.architectures.recurrent import CNNLSTM as CNNLSTM
from tunbridge.model.networks.architectures.resnet import ResNet20 as ResNet20
from tunbridge.model.networks.architectures.shallow import Shallow as Shallow
from tunbridge.model.networks.symmetries import aligned as aligned
from tunbridge.model.networks.symmetries import canonical as canonical
from tunbridge.model.networks.adapters.torch.network import from_torch as from_torch
from tunbridge.model.networks.architectures.vgg import VGG as VGG
