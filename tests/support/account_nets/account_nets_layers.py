"""Small networks for accounts: norms, activations, pooling, resizing, arithmetic of elements, convolutions."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import relu as imported_earlier
from torchvision.ops import DeformConv2d


class Lambda(nn.Module):
    """A function as a module; modules among `parts` are its children."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, inputs):
        return self.function(self, inputs)


class Pair(Lambda):
    """The same of two inputs."""

    def forward(self, inputs, others):
        return self.function(self, inputs, others)


def norms():
    """Of 8 channels of 8 × 8; batch norm without running means normalises by the batch in evaluation, too."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.BatchNorm2d(8, affine=False),
        nn.BatchNorm2d(8, track_running_stats=False),
        nn.BatchNorm2d(8, affine=False, track_running_stats=False),
        nn.GroupNorm(2, 8),
        nn.GroupNorm(2, 8, affine=False),
        nn.InstanceNorm2d(8),
        nn.InstanceNorm2d(8, affine=True),
        nn.LayerNorm(8),
        nn.LayerNorm((8, 8), elementwise_affine=False),
        nn.RMSNorm(8),
    )


def _norms_by_dimension(module, images):
    flat, deep = images.flatten(2), images.unsqueeze(2)
    return [module.bn1(flat), module.in1(flat), module.bn3(deep), module.in3(deep), module.synced(module.conv(images))]


def norms_by_dimension():
    parts = {
        "bn1": nn.BatchNorm1d(3),
        "in1": nn.InstanceNorm1d(3),
        "bn3": nn.BatchNorm3d(3),
        "in3": nn.InstanceNorm3d(3),
    }
    return Lambda(_norms_by_dimension, conv=nn.Conv2d(3, 4, 1), synced=nn.SyncBatchNorm(4), **parts)


def _torch_functions(module, images):
    """The same functions, found in torch instead of torch.nn.functional."""
    line, space = images.flatten(2), images.unsqueeze(2)
    kernel = module.kernel
    found = [torch.conv1d(line, kernel[..., 0]), torch.conv3d(space, kernel[:, :, None]), torch.conv2d(images, kernel)]
    found += [torch.conv_transpose1d(line, kernel[..., 0], stride=2), torch.conv_transpose2d(images, kernel)]
    found += [torch.conv_transpose3d(space, kernel[:, :, None])]
    found += [torch.layer_norm(images, (8, 8)), torch.group_norm(images, 3, torch.ones(3))]
    found += [torch.batch_norm(images, None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5, False)]
    return [*found, images.flatten(1).__rmatmul__(torch.ones(2, len(images)))]


def torch_functions():
    return Lambda(_torch_functions, kernel=nn.Parameter(torch.ones(3, 3, 2, 2)))


def activations():
    kinds = [nn.ReLU(), nn.ReLU6(), nn.ReLU(inplace=True), nn.LeakyReLU(), nn.PReLU(), nn.ELU(), nn.SiLU(), nn.GELU()]
    more = [nn.Hardswish(), nn.Sigmoid(), nn.Tanh(), nn.Hardtanh(), nn.Mish(), nn.Softplus()]
    return nn.Sequential(nn.Linear(12, 7), *kinds, *more, nn.Dropout())


def _activation_functions(module, inputs):
    value = module.linear(inputs)
    for function in (F.relu, F.relu6, F.leaky_relu, F.elu, F.silu, F.gelu, F.hardswish, F.relu_, torch.relu):
        value = function(value)
    value = F.prelu(value, module.weight)
    return imported_earlier(value.relu().sigmoid())


def activation_functions():
    return Lambda(_activation_functions, linear=nn.Linear(12, 7), weight=nn.Parameter(torch.ones(1)))


def _poolings(module, images):
    value = module.conv(images)
    flat, deep = value.flatten(2), value.unsqueeze(2)
    found = [part(value) for part in module.flat2] + [part(flat) for part in module.flat1]
    found += [part(deep) for part in module.flat3]
    found += [F.max_pool2d(value, 2), F.avg_pool2d(value, 2, 1), F.adaptive_avg_pool2d(value, (2, 3))]
    found += [F.max_pool1d(flat, 2), F.avg_pool1d(flat, 2), F.adaptive_max_pool2d(value, 1), value.mean((2, 3))]
    return found


def poolings():
    two = [nn.MaxPool2d(3, 2, 1), nn.AvgPool2d((2, 1)), nn.AdaptiveAvgPool2d(3), nn.AdaptiveMaxPool2d(2)]
    one = [nn.MaxPool1d(2), nn.AvgPool1d(3), nn.AdaptiveAvgPool1d(5), nn.AdaptiveMaxPool1d(4)]
    three = [nn.MaxPool3d((1, 2, 2)), nn.AvgPool3d((1, 2, 2)), nn.AdaptiveAvgPool3d(1), nn.AdaptiveMaxPool3d(1)]
    parts = {"flat1": nn.ModuleList(one), "flat2": nn.ModuleList(two), "flat3": nn.ModuleList(three)}
    return Lambda(_poolings, conv=nn.Conv2d(3, 4, 1), **parts)


def _softmaxes(module, tokens):
    value = module.linear(tokens)
    return [module.soft(value), F.softmax(value, -1), value.softmax(-1), torch.softmax(value, 1), module.log(value)]


def softmaxes():
    return Lambda(_softmaxes, linear=nn.Linear(12, 7), soft=nn.Softmax(-1), log=nn.LogSoftmax(-1))


def _resizings(module, images):
    value = module.conv(images)
    found = [part(value) for part in module.parts]
    found += [F.interpolate(value, size=(5, 9)), F.interpolate(value, 6), F.interpolate(value, scale_factor=2.0)]
    found += [F.interpolate(value, None, 0.5)]
    found += [F.interpolate(value.flatten(2), 10, mode="linear"), F.interpolate(value, 16, mode="bicubic")]
    found += [F.interpolate(value, 4, mode="bilinear", antialias=True), F.interpolate(value, 4, mode="area")]
    found += [F.interpolate(value.unsqueeze(2), scale_factor=2.0, mode="trilinear")]
    return found


def resizing_by_each_side():
    return Lambda(lambda m, x: F.interpolate(m.conv(x), scale_factor=(2, 3), mode="bilinear"), conv=nn.Conv2d(3, 4, 1))


def upsampling():
    """The old name of interpolation, which calls it."""

    def upsampled(module, images):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return F.upsample(module.conv(images), scale_factor=2)

    return Lambda(upsampled, conv=nn.Conv2d(3, 4, 1))


def odd_resizing():
    """25 pixels of 3 channels: half of them, at a batch of 2, is no whole number."""
    return nn.Sequential(nn.Conv2d(3, 3, 1), nn.Upsample((5, 5)))


def resizings():
    parts = [nn.Upsample(scale_factor=2), nn.Upsample(size=(5, 5), mode="bilinear"), nn.Upsample((4, 6))]
    more = [nn.UpsamplingBilinear2d(scale_factor=2), nn.UpsamplingNearest2d((9, 9)), nn.Upsample(None, 2.0, "bicubic")]
    return Lambda(_resizings, conv=nn.Conv2d(3, 4, 1), parts=nn.ModuleList(parts + more))


def _sampling(module, images):
    grid = torch.zeros(len(images), 3, 5, 2)
    return F.grid_sample(module.conv(images), grid, align_corners=False)


def sampling():
    return Lambda(_sampling, conv=nn.Conv2d(3, 4, 1))


def _additions(module, tokens):
    left, right = module.linear(tokens), module.other(tokens)
    value = left + right
    value = value + 1
    value = 2 + value
    value = torch.add(value, left)
    value = value.add(right)
    value = torch.add(value, 3.0)
    value = torch.add(value, right[:, :1])
    value = torch.add(value, other=left, alpha=2)
    value += left
    return value - right


def additions():
    return Lambda(_additions, linear=nn.Linear(12, 7, bias=False), other=nn.Linear(12, 7))


def _multiplications(module, tokens):
    left, right = module.linear(tokens), module.other(tokens)
    value = left * right
    value = 2 * value * 0.5
    value = torch.mul(value, right[0, 0])
    value = value.mul(right)
    value = torch.mul(0.5 * value[:, :1], value)
    value *= 3
    value = value.clone()
    value.mul_(2)
    return value / (right.abs() + 1)


def multiplications():
    return Lambda(_multiplications, linear=nn.Linear(12, 7, bias=False), other=nn.Linear(12, 7))


def _functions(module, images):
    value = F.conv2d(images, module.kernel, module.bias, padding=1)
    value = F.conv2d(value, module.square, None, 2)
    value = torch.conv2d(value, module.square)
    value = F.conv_transpose2d(value, module.square, stride=2)
    value = F.batch_norm(value, torch.zeros(4), torch.ones(4))
    return F.linear(F.layer_norm(value.mean((2, 3)), (4,)), module.weight, module.bias[:3])


def functions():
    return Lambda(
        _functions,
        kernel=nn.Parameter(torch.ones(4, 3, 3, 3)),
        square=nn.Parameter(torch.ones(4, 4, 2, 2)),
        bias=nn.Parameter(torch.ones(4)),
        weight=nn.Parameter(torch.ones(3, 4)),
    )


class MyLinear(nn.Linear):
    pass


class MyConv(nn.Conv2d):
    pass


class MyNorm(nn.BatchNorm2d):
    pass


class MyReLU(nn.ReLU):
    pass


class MySequential(nn.Sequential):
    pass


def subclasses():
    return MySequential(MyConv(3, 4, 3), MyNorm(4), MyReLU(), nn.Flatten(), MyLinear(144, 5))


def padded_by_word():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 4, padding="same"),
        nn.Conv2d(4, 5, 3, padding="valid"),
        nn.Conv2d(5, 4, (2, 3), padding="same", dilation=3, bias=False),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    )


def _dimensions(module, images):
    line, space = images.flatten(2), images.unsqueeze(2)
    return [module.one(line), module.three(space), module.two(images)]


def dimensions():
    one = nn.Sequential(nn.Conv1d(3, 4, 3, 2), nn.ConvTranspose1d(4, 6, 2, 2, groups=2))
    two = nn.Sequential(
        nn.Conv2d(3, 8, (1, 3), (1, 2), (0, 1)),
        nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1),
        nn.ConvTranspose2d(4, 8, 2, 2, groups=4, bias=False),
        nn.ConvTranspose2d(8, 8, 2, dilation=2, groups=8),
        nn.ConvTranspose2d(8, 3, 3),
    )
    three = nn.Sequential(nn.Conv3d(3, 4, (1, 3, 3)), nn.ConvTranspose3d(4, 2, (2, 2, 2), 2))
    return Lambda(_dimensions, one=one, two=two, three=three)


def grouped():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 12, 2, 2, groups=4),
        nn.ConvTranspose2d(12, 6, 2, groups=3),
    )


def deformable():
    return Lambda(
        lambda m, x: m.deform(x, m.offset(x)),
        offset=nn.Conv2d(3, 18, 3, padding=1),
        deform=DeformConv2d(3, 4, 3, padding=1),
    )


def modulated():
    return Lambda(
        lambda m, x: m.deform(x, m.offset(x), m.mask(x)),
        offset=nn.Conv2d(3, 18, 3, padding=1),
        mask=nn.Conv2d(3, 9, 3, padding=1),
        deform=DeformConv2d(3, 6, 3, padding=1, groups=3, bias=False),
    )
