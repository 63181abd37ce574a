"""ResNet-18 to 152 of another width: torchvision's blocks and forward pass, with other numbers of channels.

`width` is the channels of the first stage; each stage has twice those of the one before, and a bottleneck's output four
times its stage's. At 64 the model would be torchvision's own, which is then taken instead.
"""

from __future__ import annotations

from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

WIDTH = 64

Block = type[BasicBlock] | type[Bottleneck]

BLOCKS: dict[str, tuple[Block, tuple[int, int, int, int]]] = {
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
    "resnet101": (Bottleneck, (3, 4, 23, 3)),
    "resnet152": (Bottleneck, (3, 8, 36, 3)),
}
"""Name → its block, and how many of them each stage has."""


class ResNetOfWidth(ResNet):  # type: ignore[misc]  # torchvision has no types
    """torchvision's ResNet, built with `width` channels where its own constructor has 64."""

    def __init__(self, name: str, width: int, num_classes: int) -> None:
        nn.Module.__init__(self)  # in place of ResNet's, whose widths are literals
        block, counts = BLOCKS[name]
        self._norm_layer = nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = width, 1, 1, WIDTH  # what _make_layer reads
        self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        for stage, count in enumerate(counts):
            layer = self._make_layer(block, width << stage, count, stride=2 if stage else 1)
            self.add_module(f"layer{stage + 1}", layer)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear((width << 3) * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
