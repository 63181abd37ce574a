"""Parameters and products of Fathom's workloads as formulas of their sizes, derived by hand from the descriptions.

PARAMETERS[name](**hyper): numbers that are trained. PRODUCTS[name](**hyper): multiply-adds of one sample, forward in
training mode, in its backward pass (twice the forward one, less the gradients that nobody needs), and in evaluation.
"""

from itertools import pairwise


def conv(inputs, outputs, kernel, bias=True, groups=1):
    """(parameters, multiply-adds of one position) of a convolution."""
    weights = outputs * inputs // groups * kernel**2
    return weights + outputs * bias, weights


def dense(*sizes, bias=True):
    """(parameters, multiply-adds) of layers one after the other."""
    pairs = list(pairwise(sizes))
    weights = sum(i * o for i, o in pairs)
    return weights + sum(o for _, o in pairs) * bias, weights


def learnt(forward, first=0):
    """A model whose products all need both gradients, but that of its first layer's input."""
    return forward, 2 * forward - first, forward


# --- seq2seq: cells of 4h rows over [input, state]; a query over 2L states; two layers of [a, b]; negatives a step ---
def seq2seq_parameters(hidden, layers, vocab, **_):
    cells = 2 * layers * (8 * hidden**2 + 4 * hidden)
    attention = hidden**2 + (2 * layers * hidden * hidden + hidden) + hidden
    return 2 * vocab * hidden + cells + attention + 2 * (2 * hidden**2 + hidden) + vocab * hidden + vocab


def seq2seq_products(hidden, layers, vocab, source_words, target_words, negatives):
    read = source_words * (layers * 8 * hidden**2 + hidden**2)
    written = target_words * (layers * 8 * hidden**2 + 2 * layers * hidden**2 + 4 * hidden**2)
    forward = read + written + target_words * hidden * negatives
    return forward, 2 * forward, read + written + target_words * hidden * vocab


def fused_seq2seq_products(hidden, layers, **sizes):
    """The encoder begins with zeros, whose gradient nobody needs: a product of 4 hidden × hidden less in each layer."""
    forward, backward, alone = seq2seq_products(hidden, layers, **sizes)
    return forward, backward - layers * 4 * hidden**2, alone


def memnet_parameters(embedding, vocab, memory, **_):
    return 3 * embedding * vocab + memory * embedding + embedding**2


def memnet_products(embedding, vocab, hops, **_):
    return learnt(hops * embedding**2 + embedding * vocab)


def speech_parameters(hidden, coefficients, phonemes, **_):
    return dense(coefficients, hidden, hidden, hidden, phonemes)[0]


def speech_products(hidden, coefficients, phonemes, frames, **_):
    frame = dense(coefficients, hidden, hidden, hidden, phonemes)[1]
    return learnt(frames * frame, first=frames * coefficients * hidden)


def deep_speech_parameters(hidden, coefficients, phonemes, **_):
    """The recurrent layer: one product that both directions read, one of each, and the layer after it."""
    return dense(coefficients, hidden, hidden, hidden)[0] + 4 * hidden**2 + 2 * hidden + dense(hidden, phonemes)[0]


def deep_speech_products(hidden, coefficients, phonemes, frames, **_):
    """Nobody needs the gradient of the zeros that both directions begin with."""
    frame = dense(coefficients, hidden, hidden, hidden)[1] + 4 * hidden**2 + hidden * phonemes
    return learnt(frames * frame, first=frames * coefficients * hidden + 2 * hidden**2)


def autoenc_parameters(pixels, latent):
    return 2 * dense(pixels, latent)[0] + dense(latent, pixels)[0]


def autoenc_products(pixels, latent):
    """The pixels need no gradient: of the two first products, that of the weight alone."""
    return learnt(3 * pixels * latent, first=2 * pixels * latent)


def _residual(image_size, num_classes, width):
    """(parameters, multiply-adds) of the stem, and of all that comes after."""
    stem, position = conv(3, width, 7)
    parameters, weights, channels = stem, 0, width
    for stage in (2, 4, 8, 16):
        wide, narrow = stage * width, stage * width // 4
        block = (conv(wide, narrow, 1), conv(narrow, narrow, 3), conv(narrow, wide, 1))
        parameters += channels * wide + 3 * sum(each[0] for each in block)
        weights += channels * wide + 3 * sum(each[1] for each in block)
        channels = wide
    head = channels * num_classes
    return parameters + head, (image_size // 2) ** 2 * position, (image_size // 4) ** 2 * weights + head


def residual_parameters(**hyper):
    return _residual(**hyper)[0]


def residual_products(**hyper):
    _, stem, rest = _residual(**hyper)
    return learnt(stem + rest, first=stem)


def _vgg(blocks):
    def both(image_size, num_classes, width):
        parameters = products = 0
        channels, side, first = 3, image_size, 0
        for count, widths in zip(blocks, (1, 2, 4, 8, 8), strict=True):
            for _ in range(count):
                own, position = conv(channels, widths * width, 3)
                parameters, products, channels = parameters + own, products + side**2 * position, widths * width
                first = first or products
            side //= 2
        own, head = dense(channels * side**2, 64 * width, 64 * width, num_classes)
        return parameters + own, products + head, first

    return both


def _alexnet(channels, groups, stem_padding):
    """channels: of the five convolutions, in halves of a width."""

    def both(image_size, num_classes, width):
        wide = [each * width // 2 for each in channels]
        side = (image_size + 2 * stem_padding - 11) // 4 + 1
        parameters, products, inputs, first = 0, 0, 3, 0
        for place, (outputs, kernel, group) in enumerate(zip(wide, (11, 5, 3, 3, 3), groups, strict=True)):
            own, position = conv(inputs, outputs, kernel, groups=group)
            parameters, products, inputs = parameters + own, products + side**2 * position, outputs
            first = first or products
            if place in (0, 1, 4):
                side = (side - 3) // 2 + 1
        own, head = dense(inputs * side**2, 64 * width, 64 * width, num_classes)
        return parameters + own, products + head, first

    return both


def _deepq(image_size, hidden, actions):
    """(parameters, multiply-adds, those of the first convolution) of one network. Sides of 84: 20, 9, 7."""
    sides = [(image_size - 8) // 4 + 1]
    sides.append((sides[0] - 4) // 2 + 1)
    sides.append(sides[1] - 2)
    layers = (conv(4, 32, 8), conv(32, 64, 4), conv(64, 64, 3))
    head = dense(64 * sides[2] ** 2, hidden, actions)
    products = [side**2 * each[1] for side, each in zip(sides, layers, strict=True)]
    return sum(each[0] for each in layers) + head[0], sum(products) + head[1], products[0]


def deepq_products(**hyper):
    """Both networks forward; of the target nothing backward; in evaluation it is not asked."""
    _, one, first = _deepq(**hyper)
    return 2 * one, 2 * one - first, one


def _of(both):
    return (lambda **hyper: both(**hyper)[0]), (lambda **hyper: learnt(both(**hyper)[1], first=both(**hyper)[2]))


_VGG16, _VGG19 = _of(_vgg((2, 2, 3, 3, 3))), _of(_vgg((2, 2, 4, 4, 4)))
_ALEXNET = _of(_alexnet((2, 6, 12, 8, 8), (1, 1, 1, 1, 1), 4))
_ALEXNET_2012 = _of(_alexnet((3, 8, 12, 12, 8), (1, 2, 1, 2, 2), 2))

PARAMETERS = {
    "seq2seq": seq2seq_parameters,
    "seq2seq@as_paper": seq2seq_parameters,
    "seq2seq@fused": seq2seq_parameters,
    "memnet": memnet_parameters,
    "fathom-speech": speech_parameters,
    "fathom-speech@as_paper": deep_speech_parameters,
    "autoenc": autoenc_parameters,
    "residual": residual_parameters,
    "fathom-vgg": _VGG16[0],
    "fathom-vgg@as_paper": _VGG19[0],
    "fathom-alexnet": _ALEXNET[0],
    "fathom-alexnet@as_paper": _ALEXNET_2012[0],
    "deepq": lambda **hyper: _deepq(**hyper)[0],
    "deepq@as_paper": lambda **hyper: _deepq(**hyper)[0],
}

PRODUCTS = {
    "seq2seq": seq2seq_products,
    "seq2seq@as_paper": seq2seq_products,
    "seq2seq@fused": fused_seq2seq_products,
    "memnet": memnet_products,
    "fathom-speech": speech_products,
    "fathom-speech@as_paper": deep_speech_products,
    "autoenc": autoenc_products,
    "residual": residual_products,
    "fathom-vgg": _VGG16[1],
    "fathom-vgg@as_paper": _VGG19[1],
    "fathom-alexnet": _ALEXNET[1],
    "fathom-alexnet@as_paper": _ALEXNET_2012[1],
    "deepq": deepq_products,
    "deepq@as_paper": deepq_products,
}

TINY = {
    "seq2seq": {"hidden": 6, "layers": 2, "vocab": 30, "source_words": 4, "target_words": 5, "negatives": 7},
    "memnet": {"embedding": 5, "vocab": 23, "sentence": 7, "memory": 4, "hops": 2},
    "fathom-speech": {"hidden": 9, "frames": 8, "coefficients": 5, "labels": 3, "phonemes": 6},
    "autoenc": {"pixels": 13, "latent": 4},
    "residual": {"image_size": 12, "num_classes": 7, "width": 6},
    "fathom-vgg": {"image_size": 32, "num_classes": 7, "width": 2},
    "fathom-alexnet": {"image_size": 64, "num_classes": 7, "width": 4},
    "deepq": {"hidden": 5, "actions": 4},
    "gpt2": {"d_model": 12, "layers": 2, "heads": 3, "seq": 6, "vocab": 12},
    "vit": {"image_size": 16, "num_classes": 7, "patch": 8, "d_model": 12, "layers": 1, "heads": 3},
}
"""Sizes for tests; no two of a model alike where they may differ."""
