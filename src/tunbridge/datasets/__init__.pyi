"""Where every name of `tunbridge.datasets` lives."""

from tunbridge.datasets.bundled import breast_cancer as breast_cancer
from tunbridge.datasets.bundled import diabetes as diabetes
from tunbridge.datasets.bundled import digits as digits
from tunbridge.datasets.bundled import wine as wine
from tunbridge.datasets.images import cifar10 as cifar10
from tunbridge.datasets.images import fashion_mnist as fashion_mnist
from tunbridge.datasets.images import mnist as mnist
from tunbridge.datasets.scaling import Scaling as Scaling
from tunbridge.datasets.scaling import split as split
from tunbridge.datasets.series import lagged as lagged
from tunbridge.datasets.toy import curve as curve
from tunbridge.datasets.toy import funnel as funnel
from tunbridge.datasets.toy import moons as moons
