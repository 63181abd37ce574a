"""Twenty-two small training loops for the meter. None changes its model in the middle.

Each function gives the model that the meter watches, and one step of the loop. A layer of 16 × 16 at a
batch of 4 takes F = 2 · 4 · 16 · 16 = 2048 FLOP forward, and as much for each of its two gradients.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH = 16, 4

Loop = tuple[nn.Module, Callable[[], object]]


def net(layers: int = 3) -> nn.Sequential:
    """Square layers; of the first one's input no gradient is needed: forward L · F, backward (2 · L - 1) · F."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(layers)))


def samples(batch: int = BATCH, width: int = WIDTH) -> torch.Tensor:
    return torch.randn(batch, width)


def trained(model: nn.Module, loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer | None = None) -> Loop:
    """A loop whose step clears the gradients, goes back from one loss, and updates."""
    used = optimizer or torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01)

    def step() -> None:
        used.zero_grad()
        loss().backward()
        used.step()

    return model, step


def plain() -> Loop:
    """3 F + 5 F."""
    model = net()
    return trained(model, lambda: model(samples()).square().mean())


def adam_convolution() -> Loop:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    model = nn.Sequential(*layers)
    labels = torch.tensor([0, 1, 2, 3])
    optimizer = torch.optim.Adam(model.parameters())
    return trained(model, lambda: functional.cross_entropy(model(torch.randn(4, 3, 12, 12)), labels), optimizer)


def accumulated() -> Loop:
    """4 · 8 F."""
    model = net()

    def step() -> None:
        for _ in range(4):
            model(samples()).square().mean().backward()
        model.zero_grad()

    return model, step


def autocast() -> Loop:
    model = net()

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(samples()).float().square().mean()

    return trained(model, loss)


def scaled() -> Loop:
    """Gradients scaled, as for float16."""
    model, scaler = net(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        scaler.scale(model(samples()).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    return model, step


def evaluated_inside() -> Loop:
    """8 F, and 2 · 3 F of an evaluation with a batch of twice the size."""
    model = net()

    def loss() -> torch.Tensor:
        model.eval()
        with torch.no_grad():
            model(samples(2 * BATCH))
        model.train()
        return model(samples()).square().mean()

    return trained(model, loss)


def frozen_first() -> Loop:
    """3 F, and back 2 F + 1 F: nothing below the second layer has a gradient."""
    model = net()
    model[0].requires_grad_(False)
    return trained(model, lambda: model(samples()).square().mean())


def frozen_middle() -> Loop:
    """3 F, and back 2 F + 1 F + 1 F: the second layer passes its input's gradient on."""
    model = net()
    model[1].requires_grad_(False)
    return trained(model, lambda: model(samples()).square().mean())


def gan() -> Loop:
    """The discriminator's share: 8 F each for real and made-up samples, 3 F + 6 F on the way to the generator."""
    generator, discriminator = net(2), net()
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (generator, discriminator)]

    def step() -> None:
        made = generator(samples())
        (discriminator(samples()).mean() - discriminator(made.detach()).mean()).backward()
        optimizers[1].step()
        discriminator.zero_grad()
        discriminator(made).mean().backward()
        optimizers[0].step()

    return discriminator, step


def gradient_penalty() -> Loop:
    """3 F, back to the input 3 F; then back through that 6 F, and through the first pass 6 F."""
    model = net()

    def loss() -> torch.Tensor:
        inputs = samples().requires_grad_()
        outputs = model(inputs)
        (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        return outputs.mean() + (slope.norm(dim=1) - 1).square().mean()

    return trained(model, loss)


class Checkpointed(nn.Module):
    """Its body's forward pass runs again in the backward pass."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant, self.body, self.head = reentrant, net(), nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(checkpoint(self.body, inputs, use_reentrant=self.reentrant))


def checkpointed() -> Loop:
    """4 F, back 7 F, and 3 F again."""
    model = Checkpointed(reentrant=False)
    return trained(model, lambda: model(samples()).square().mean())


def checkpointed_reentrant() -> Loop:
    """The input asks for a gradient: back 8 F."""
    model = Checkpointed(reentrant=True)
    return trained(model, lambda: model(samples().requires_grad_()).square().mean())


def lbfgs() -> Loop:
    """Three closures a step, one for each iteration: 3 · 8 F."""
    model, fixed = net(), samples()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=3, tolerance_grad=0, tolerance_change=0)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(fixed).square().mean()
        loss.backward()
        return loss

    return model, lambda: optimizer.step(closure)


def recurrent() -> Loop:
    """Input and states ask for gradients, so that every kernel has all products to do: 3 × forward."""
    model = nn.LSTM(WIDTH, 8, num_layers=2, batch_first=True)

    def loss() -> torch.Tensor:
        inputs, *states = (torch.randn(size).requires_grad_() for size in ((BATCH, 10, WIDTH), *[(2, BATCH, 8)] * 2))
        return model(inputs, tuple(states))[0].square().mean()

    return trained(model, loss)


def truncated() -> Loop:
    """Three parts of a sequence, each with a backward pass of its own; the state goes on without its history."""
    model = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def step() -> None:
        state = torch.zeros(1, BATCH, WIDTH)
        for _ in range(3):
            outputs, state = model(torch.randn(BATCH, 5, WIDTH), state.detach())
            outputs.square().mean().backward()
        model.zero_grad()

    return model, step


def encoder() -> Loop:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return trained(model, lambda: model(torch.randn(BATCH, 6, WIDTH)).square().mean())


class Tied(nn.Module):
    """The output layer's weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.body = nn.Embedding(32, WIDTH), net(1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.body(self.words(ids)) @ self.words.weight.T


def tied() -> Loop:
    model = Tied()
    return trained(model, lambda: model(torch.randint(32, (BATCH, 6))).logsumexp(-1).mean())


def adversarial() -> Loop:
    """Back to the input (6 F), then a training pass on the input that was moved (8 F), each after 3 F."""
    model = net()

    def loss() -> torch.Tensor:
        inputs = samples().requires_grad_()
        model(inputs).square().mean().backward()
        model.zero_grad()
        return model((inputs + 0.1 * inputs.grad.sign()).detach()).square().mean()

    return trained(model, loss)


def two_losses() -> Loop:
    """3 F, and back through one graph twice: 10 F."""
    model = net()

    def step() -> None:
        outputs = model(samples())
        outputs.square().mean().backward(retain_graph=True)
        outputs.abs().mean().backward()
        model.zero_grad()

    return model, step


def two_sizes() -> Loop:
    """Batches of 4 and 8 in turn: 12 F in the mean."""
    model = net()
    batches = iter([BATCH, 2 * BATCH] * 100)
    return trained(model, lambda: model(samples(next(batches))).square().mean())


def called_twice() -> Loop:
    """Two inputs through the same layers, one loss: 2 · 8 F."""
    model = net()
    return trained(model, lambda: (model(samples()) - model(samples())).square().mean())


class Distilled(nn.Module):
    """A student, and a teacher that has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = net().requires_grad_(False), net(1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            taught = self.teacher(inputs)
        return (self.student(inputs) - taught).square().mean()


def distilled() -> Loop:
    """3 F of the teacher, F + F of the student."""
    model = Distilled()
    return trained(model, lambda: model(samples()))


LOOPS = (
    plain, adam_convolution, accumulated, autocast, scaled, evaluated_inside, frozen_first, frozen_middle, gan,
    gradient_penalty, checkpointed, checkpointed_reentrant, lbfgs, recurrent, truncated, encoder, tied, adversarial,
    two_losses, two_sizes, called_twice, distilled,
)  # fmt: skip
