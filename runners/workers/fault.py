"""Why a task in a process of its own gave no result: the one word that pool, worker and commands share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerFault:
    """Why a call gave no result. status: one of `STATUSES`. detail: a traceback, where there is one."""

    status: str
    reason: str
    detail: str = ""
