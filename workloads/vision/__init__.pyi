from .cifar_files import CLASSES, directory_of
from .wide_resnet import ResNetOfWidth

__all__ = [
    "CLASSES",
    "ResNetOfWidth",
    "directory_of",
]
