"""Builds Fathom's image networks and a ViT of the same form, and makes the images that they are trained on.

Fathom is a suite of eight deep-learning workloads, described by code and paper. The classes `AlexNet`, `AlexNet2012`,
`VGG` and `Residual` take images and return logits, and so does the model of `vision_transformer`. `AutoEncoder` takes
images as rows of pixels and returns their reconstruction. `image_batch` and `pattern_batch` draw the images. Nothing
here resembles photographs.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import torch
from torch import nn
from torchvision.models import VisionTransformer

from workloads.catalogue.base import Batch
from workloads.torchvision_models import ResNetOfWidth

CHANNELS = 3


def image_batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Draw size × 3 × S × S images, and their labels below num_classes.

    An image is normal noise with a grating whose direction and width encode its label. Learning thus shows on images
    that were never seen before.
    """
    side = hyper["image_size"]
    labels = torch.randint(hyper["num_classes"], (size,), device=device, generator=generator)
    noise = torch.randn(size, CHANNELS, side, side, device=device, generator=generator)
    coordinates = torch.arange(side, device=device) / side
    across, down = 1 + labels % 32, labels // 32  # waves of a grating; 1,001 labels need 32 × 32 of them
    waves = across.view(-1, 1, 1) * coordinates + down.view(-1, 1, 1) * coordinates.unsqueeze(1)
    return Batch((noise + torch.cos(2 * torch.pi * waves).unsqueeze(1),), labels)


def begin(module: nn.Module) -> None:
    """Set He's initial weights (He et al. 2015, arXiv:1502.01852), and biases of 0; for `Module.apply`. With Fathom's
    initial weights, some of deviation 1, the networks do not train."""
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


FEATURES = 64
"""Features of each hidden layer ÷ width: 4,096 at a width of 64."""


class AlexNet(nn.Module):
    """`fathom-alexnet` as coded: images, batch × 3 × S × S → logits, batch × num_classes.

    The channels are those of Krizhevsky 2014, arXiv:1404.5997. Values are normalised over neighbouring channels, there
    is no dropout, and the first convolution has SAME padding: 1.43 GFLOP per image. TensorFlow pads the odd pixel after
    the image; here padding is equal on both sides, which changes no size.
    """

    def __init__(self, image_size: int, num_classes: int, width: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(CHANNELS, width, 11, stride=4, padding=4), nn.ReLU(), nn.MaxPool2d(3, 2), _neighbours(),
            nn.Conv2d(width, 3 * width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2), _neighbours(),
            nn.Conv2d(3 * width, 6 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(6 * width, 4 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(4 * width, 4 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        features = FEATURES * width
        self.classifier = nn.Sequential(
            nn.Linear(4 * width * _side(image_size) ** 2, features), nn.ReLU(),
            nn.Linear(features, features), nn.ReLU(),
            nn.Linear(features, num_classes),
        )  # fmt: skip
        self.apply(begin)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.convolutions(images).flatten(1))
        return logits


class AlexNet2012(AlexNet):
    """`fathom-alexnet` as in the paper (Krizhevsky et al. 2012, ImageNet classification with deep convolutional neural
    networks).

    It has more channels, the second, fourth and fifth convolutions in two groups, and half of the values dropped. The
    first convolution makes 55 × 55 pixels of an image of 224.
    """

    def __init__(self, image_size: int, num_classes: int, width: int) -> None:
        nn.Module.__init__(self)
        wide = width // 2
        self.convolutions = nn.Sequential(
            nn.Conv2d(CHANNELS, 3 * wide, 11, stride=4, padding=2), nn.ReLU(), _neighbours(5, 1e-4, 2.0),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(3 * wide, 8 * wide, 5, padding=2, groups=2), nn.ReLU(), _neighbours(5, 1e-4, 2.0),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(8 * wide, 12 * wide, 3, padding=1), nn.ReLU(),
            nn.Conv2d(12 * wide, 12 * wide, 3, padding=1, groups=2), nn.ReLU(),
            nn.Conv2d(12 * wide, 8 * wide, 3, padding=1, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        features = FEATURES * width
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(8 * wide * _side(image_size) ** 2, features), nn.ReLU(),
            nn.Dropout(), nn.Linear(features, features), nn.ReLU(),
            nn.Linear(features, num_classes),
        )  # fmt: skip
        self.apply(begin)


def _neighbours(channels: int = 9, alpha: float = 1e-3, bias: float = 1.0) -> nn.Module:
    """Divide values by a power of those in neighbouring channels. alpha: for all of these channels together."""
    return nn.LocalResponseNorm(channels, alpha=alpha, beta=0.75, k=bias)


def _side(image_size: int) -> int:
    """Return the pixels a side after the last pool, for an image whose side is a multiple of 32: 224, 56, 27, 13, 6."""
    return image_size // 32 - 1


CHANNELS_OF_BLOCKS = (1, 2, 4, 8, 8)
"""Channels of each block ÷ width."""


class VGG(nn.Module):
    """`fathom-vgg`: images, batch × 3 × S × S → logits, batch × num_classes. blocks: convolutions of each block.

    As coded it is VGG-16 with a ReLU on its logits. As described in the paper it is VGG-19 (Simonyan and Zisserman
    2015, arXiv:1409.1556). It has thirteen or sixteen convolutions of 3 × 3, a pool of 2 after each of five blocks, and
    three matrix products. Between these products the code drops a fifth of the values, VGG's paper a half.
    """

    def __init__(
        self, image_size: int, num_classes: int, width: int, blocks: tuple[int, ...], dropped: float, clipped: bool
    ) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(*_layers(width, blocks))
        side, features = image_size >> len(blocks), FEATURES * width
        self.classifier = nn.Sequential(
            nn.Linear(CHANNELS_OF_BLOCKS[-1] * width * side**2, features), nn.ReLU(), nn.Dropout(dropped),
            nn.Linear(features, features), nn.ReLU(), nn.Dropout(dropped),
            nn.Linear(features, num_classes), *([nn.ReLU()] if clipped else []),
        )  # fmt: skip
        self.apply(begin)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.convolutions(images).flatten(1))
        return logits


def _layers(width: int, blocks: tuple[int, ...]) -> Iterator[nn.Module]:
    channels = CHANNELS
    for count, widths in zip(blocks, CHANNELS_OF_BLOCKS, strict=True):
        for _ in range(count):
            yield nn.Conv2d(channels, widths * width, 3, padding=1)
            yield nn.ReLU()
            channels = widths * width
        yield nn.MaxPool2d(2)


vgg16 = partial(VGG, blocks=(2, 2, 3, 3, 3), dropped=0.2, clipped=True)
vgg19 = partial(VGG, blocks=(2, 2, 4, 4, 4), dropped=0.5, clipped=False)


BLOCKS = 3
DEVIATION = 0.02
STAGES = (2, 4, 8, 16)
"""Channels of each stage ÷ width of the stem; those inside a block are a quarter."""


class ResidualBlock(nn.Module):
    """x → x + three convolutions of x, of 1, 3 and 1, each with its ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // 4
        self.branch = nn.Sequential(
            nn.Conv2d(channels, inner, 1), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, padding=1), nn.ReLU(),
            nn.Conv2d(inner, channels, 1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        branch: torch.Tensor = self.branch(images)
        return images + branch


class Residual(nn.Module):
    """`residual` as coded: images, batch × 3 × S × S → logits, batch × num_classes.

    It is a bottleneck network whose images never get smaller. A stem reduces an image to a quarter of its side. Then
    come four stages of three blocks, all of that side and without batch normalisation. A block has three ReLUs, and
    none after the sum. Convolutions of 1 × 1 that begin a stage have no bias. 42 layers have weights. An image takes
    4.4 times the FLOP of ResNet-34 (He et al. 2015, arXiv:1512.03385), which is what the paper describes.
    """

    def __init__(self, image_size: int, num_classes: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(CHANNELS, width, 7, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)
        )
        layers: list[nn.Module] = []
        channels = width
        for stage in STAGES:
            layers += [nn.Conv2d(channels, stage * width, 1, bias=False)]
            channels = stage * width
            layers += [ResidualBlock(channels) for _ in range(BLOCKS)]
        self.stages = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, num_classes, bias=False)
        self.apply(_begin_small)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.stages(self.stem(images)).mean(dim=(2, 3)))
        return logits


def _begin_small(module: nn.Module) -> None:
    """Set small weights, as coded, so that branches add little to begin with; for `Module.apply`."""
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        nn.init.trunc_normal_(module.weight, std=DEVIATION, a=-2 * DEVIATION, b=2 * DEVIATION)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def resnet34(image_size: int, num_classes: int, width: int) -> nn.Module:
    """Return a ResNet-34, as in the paper; at a width of 64 it is torchvision's. image_size: not used."""
    return ResNetOfWidth("resnet34", width, num_classes)


PATTERNS = 10

Coded = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Reconstruction, batch × pixels; mean and logarithm of the variance, batch × latent."""


class AutoEncoder(nn.Module):
    """`autoenc`, a variational autoencoder (Kingma and Welling 2014, arXiv:1312.6114): images, batch × pixels → Coded.

    It has no nonlinearity. With n pixels and l latent values it has 3nl + 2l + n parameters. Mean, logarithm of the
    variance, and reconstruction are one product each. Weights of the reconstruction begin at zero. Latent values are
    drawn in evaluation mode, too. The softplus that Fathom's code sets is never used, and is left out.
    """

    def __init__(self, pixels: int, latent: int) -> None:
        super().__init__()
        self.mean, self.log_variance = nn.Linear(pixels, latent), nn.Linear(pixels, latent)
        self.reconstruction = nn.Linear(latent, pixels)
        for parameter in self.reconstruction.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: torch.Tensor) -> Coded:
        mean, log_variance = self.mean(images), self.log_variance(images)
        drawn = mean + log_variance.exp().sqrt() * torch.randn_like(mean)
        return self.reconstruction(drawn), mean, log_variance


def coded_loss(output: Coded, images: torch.Tensor) -> torch.Tensor:
    """Return half the squared error of the whole batch + the mean of the samples' Kullback-Leibler divergence from a
    standard normal distribution."""
    reconstruction, mean, log_variance = output
    distance = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=1)
    return (0.5 * (reconstruction - images).square().sum() + distance).mean()


def pattern_batch(
    hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """Draw input and target: size × pixels, each of mean 0 and variance 1 over the samples, as MNIST's standardised
    images are. An image is a blend of ten fixed patterns, and noise."""
    shares = torch.randn(size, PATTERNS, device=device, generator=generator)
    noise = torch.randn(size, hyper["pixels"], device=device, generator=generator)
    coordinates = torch.arange(hyper["pixels"], device=device) / hyper["pixels"]
    patterns = torch.cos(torch.pi * torch.arange(1, PATTERNS + 1, device=device).unsqueeze(1) * coordinates)
    images = (shares @ patterns + noise) / (patterns.square().sum(dim=0) + 1).sqrt()
    return Batch((images,), images)


def vision_transformer(
    image_size: int, num_classes: int, patch: int, d_model: int, layers: int, heads: int
) -> torch.nn.Module:
    """Return `vit`: images, batch × 3 × S × S → logits, batch × num_classes.

    The model (Dosovitskiy et al. 2021, arXiv:2010.11929) is not part of Fathom, which is of 2016. At the default sizes
    it is ViT-B/16. Its feed-forward layers are four times as wide as d_model.
    """
    model: torch.nn.Module = VisionTransformer(
        image_size, patch, layers, heads, d_model, 4 * d_model, num_classes=num_classes
    )
    return model
