"""A game of catch on a grid: a ball falls, a paddle below moves left or right. Made with tensors, on any device.

The stand-in for Atari's Breakout, whose program may not be passed on: the same four actions (nothing, fire, right,
left, of which the second does nothing here, either), frames of one channel, and rewards of -1, 0 and 1. A game ends
when the ball reaches the lowest row: it is caught if the paddle, three wide, is there. It has no score and no walls.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

GRID = 12
FRAMES = 4
"""Frames of a state: the last ones, of which a network sees where things move."""

MOVES = (0, 0, 1, -1)
"""Of each action, in columns to the right. Further actions do nothing."""


@dataclass(frozen=True)
class Game:
    """Many games at once: ball row and column, and columns of the paddle now and before, newest first."""

    row: torch.Tensor  # size
    column: torch.Tensor  # size
    paddles: torch.Tensor  # size × FRAMES

    def frames(self, side: int) -> torch.Tensor:
        """The last frames, the newest first, each cell a square of pixels: size × FRAMES × side × side of 0 and 1."""
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
        """The games a frame later, rewards, and whether they have ended (both size, of float32)."""
        move = (action == 2).long() - (action == 3).long()
        paddle = (self.paddles[:, 0] + move).clamp(0, GRID - 1)
        after = Game(self.row + 1, self.column, torch.cat([paddle.unsqueeze(1), self.paddles[:, :-1]], dim=1))
        ended = after.row >= GRID - 1
        caught = (paddle - self.column).abs() <= 1
        return after, torch.where(caught, 1.0, -1.0) * ended, ended.float()


def begun(size: int, device: torch.device, generator: torch.Generator | None, anywhere: bool = False) -> Game:
    """Games at their first frame, or with the ball anywhere above the lowest row; the paddle stood still before."""

    def below(bound: int) -> torch.Tensor:
        return torch.randint(bound, (size,), device=device, generator=generator)

    row = below(GRID - 1) if anywhere else torch.zeros(size, dtype=torch.int64, device=device)
    return Game(row, below(GRID), below(GRID).unsqueeze(1).expand(size, FRAMES))
