"""Builds Fathom's `deepq`: Q-learning from pixels (Mnih et al. 2015), and the game that it plays.

Fathom is a suite of eight deep-learning workloads. `batch` draws transitions of a game. `DeepQ` takes them and returns
values of the chosen actions, and their targets: the reward plus the target network's discounted value of the next
state. The network has three convolutions and two products. The target network is a copy of the weights in buffers;
`refresh` renews it, which the paper does every 10,000 steps. In evaluation mode only states are used. The game is catch
on a grid, made with tensors (`Game`). It replaces Atari's Breakout, whose program may not be distributed. Source:
"Human-level control through deep reinforcement learning".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from workloads.catalogue.base import Batch
from workloads.fathom.image_nets import begin

GRID = 12
FRAMES = 4
"""Number of frames in a state: the last ones, from which a network sees movement."""


@dataclass(frozen=True)
class Game:
    """Many games of catch at once: ball row and column, and columns of the paddle now and before, newest first.

    A ball falls, a paddle below moves left or right. As in Breakout there are four actions (nothing, fire, right, left;
    fire has no effect), frames of one channel, and rewards of -1, 0 and 1. A game ends when the ball reaches the lowest
    row: it is caught if the paddle, three wide, is there. There is no score and no wall.
    """

    row: torch.Tensor  # size
    column: torch.Tensor  # size
    paddles: torch.Tensor  # size × FRAMES

    def frames(self, side: int) -> torch.Tensor:
        """Return the last frames, the newest first, each cell a square of pixels: size × FRAMES × side × side of 0 and
        1."""
        cells = torch.arange(GRID, device=self.row.device)
        past = torch.arange(FRAMES, device=self.row.device)
        rows = (self.row.unsqueeze(1) - past).unsqueeze(2) == cells  # size × FRAMES × GRID
        ball = rows.unsqueeze(3) & (self.column.view(-1, 1, 1, 1) == cells)
        near = (self.paddles.unsqueeze(2) - cells).abs() <= 1
        paddle = near.unsqueeze(2) & (cells == GRID - 1).view(-1, 1)
        pixels = (ball | paddle).float()
        times = side // GRID
        return pixels.repeat_interleave(times, dim=2).repeat_interleave(times, dim=3)

    def played(self, action: torch.Tensor) -> tuple[Game, torch.Tensor, torch.Tensor]:
        """Return the games a frame later, rewards, and whether they have ended (both size, of float32)."""
        move = (action == 2).long() - (action == 3).long()
        paddle = (self.paddles[:, 0] + move).clamp(0, GRID - 1)
        after = Game(self.row + 1, self.column, torch.cat([paddle.unsqueeze(1), self.paddles[:, :-1]], dim=1))
        ended = after.row >= GRID - 1
        caught = (paddle - self.column).abs() <= 1
        return after, torch.where(caught, 1.0, -1.0) * ended, ended.float()


def new_games(size: int, device: torch.device, generator: torch.Generator | None, anywhere: bool = False) -> Game:
    """Return games at their first frame, or (anywhere) with the ball anywhere above the lowest row. The paddle has not
    moved before."""

    def below(bound: int) -> torch.Tensor:
        return torch.randint(bound, (size,), device=device, generator=generator)

    row = below(GRID - 1) if anywhere else torch.zeros(size, dtype=torch.int64, device=device)
    return Game(row, below(GRID), below(GRID).unsqueeze(1).expand(size, FRAMES))


class QNetwork(nn.Sequential):
    """States, batch × 4 × S × S → value of each action, batch × actions."""

    def __init__(self, image_size: int, hidden: int, actions: int) -> None:
        side = (((image_size - 8) // 4 + 1) - 4) // 2 + 1 - 2
        super().__init__(
            nn.Conv2d(FRAMES, 32, 8, stride=4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(64 * side**2, hidden), nn.ReLU(),
            nn.Linear(hidden, actions),
        )  # fmt: skip
        self.apply(begin)


class DeepQ(nn.Module):
    """States, actions, rewards, next states, and 1 where the game ended → values of the chosen actions, and the
    target's, batch each. In evaluation mode: value of each action, batch × actions.

    With h hidden values, a actions and s pixels a side after the convolutions (7), 77,984 + (64s² + 1 + a)h + a
    parameters are trained."""

    def __init__(self, image_size: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.online = QNetwork(image_size, hidden, actions)
        self.target = QNetwork(image_size, hidden, actions)
        for module in self.target.modules():
            for name in list(module._parameters):
                weight = module._parameters.pop(name)
                module.register_buffer(name, None if weight is None else weight.detach())
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the weights to the target."""
        for buffer, weight in zip(self.target.buffers(), self.online.parameters(), strict=True):
            buffer.copy_(weight)

    def forward(
        self,
        states: torch.Tensor,
        actions: torch.Tensor,
        rewards: torch.Tensor,
        after: torch.Tensor,
        ended: torch.Tensor,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        worth: torch.Tensor = self.online(states)
        if not self.training:
            return worth
        best = self.target(after).amax(dim=1)
        return self.of_action(worth, actions), rewards + 0.99 * (1 - ended) * best

    def of_action(self, worth: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return the values of the chosen actions, as in the paper."""
        return (worth * _chosen(actions, worth)).sum(dim=1)


class DeepQAsCoded(DeepQ):
    """`DeepQ` as coded: takes the maximum of Q × (1 for the chosen action, 0 for others), where the paper means the
    sum. Where Q is negative, the maximum is 0 and has no gradient."""

    def of_action(self, worth: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return (worth * _chosen(actions, worth)).amax(dim=1)


def _chosen(actions: torch.Tensor, worth: torch.Tensor) -> torch.Tensor:
    """Return 1 for the chosen action and 0 for others: batch × actions. torch's one_hot would read the values back from
    the device."""
    return (actions.unsqueeze(1) == torch.arange(worth.shape[1], device=worth.device)).to(worth.dtype)


def loss(output: tuple[torch.Tensor, torch.Tensor], _target: None) -> torch.Tensor:
    """Return Huber's loss of the difference, added up over the batch."""
    worth, target = output
    return functional.huber_loss(worth, target, reduction="sum")


def batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Draw inputs: one transition of each of `size` games of catch, at a random frame and after a random action."""
    game = new_games(size, device, generator, anywhere=True)
    before = torch.randint(hyper["actions"], (size,), device=device, generator=generator)
    game = Game(game.row, game.column, game.played(before)[0].paddles)
    actions = torch.randint(hyper["actions"], (size,), device=device, generator=generator)
    after, rewards, ended = game.played(actions)
    side = hyper["image_size"]
    return Batch((game.frames(side), actions, rewards, after.frames(side), ended), None)
