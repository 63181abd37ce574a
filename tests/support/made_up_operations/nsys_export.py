"""Exports of Nsight Systems made up for tests: the tables and columns of three generations, filled by hand."""

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PID, VM = 700, 1
PROCESS = VM << 24 | PID
MAIN, ENGINE = 11, 12

_KERNEL = """
    start end deviceId contextId streamId correlationId globalPid demangledName shortName mangledName
    gridX gridY gridZ blockX blockY blockZ graphNodeId
"""
_NVTX = "start end eventType rangeId text globalTid endGlobalTid textId domainId jsonText"
_RUNTIME = "start end eventClass globalTid correlationId nameId returnValue callchainId"
_COPY = "start end deviceId streamId correlationId globalPid bytes copyKind graphNodeId"
_FILL = "start end deviceId streamId correlationId globalPid value bytes graphNodeId"
_GPU = "id name cuDevice smCount chipName"

TABLES: Mapping[int, Mapping[str, str]] = {
    2022: {
        "EXPORT_META_DATA": "name value",
        "StringIds": "id value",
        "NVTX_EVENTS": _NVTX,
        "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL,
        "CUPTI_ACTIVITY_KIND_RUNTIME": _RUNTIME,
        "CUPTI_ACTIVITY_KIND_MEMCPY": _COPY,
        "CUPTI_ACTIVITY_KIND_MEMSET": _FILL,
        "TARGET_INFO_GPU": _GPU,
        "CUDA_GRAPH_EVENTS": "start end globalTid nameId graphNodeId",
    },
    2024: {
        "META_DATA_EXPORT": "name value",
        "StringIds": "id value",
        "NVTX_EVENTS": _NVTX,
        "CUPTI_ACTIVITY_KIND_KERNEL": f"{_KERNEL} greenContextId graphId clusterX",
        "CUPTI_ACTIVITY_KIND_RUNTIME": _RUNTIME,
        "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_COPY} greenContextId",
        "CUPTI_ACTIVITY_KIND_MEMSET": f"{_FILL} greenContextId",
        "TARGET_INFO_GPU": _GPU,
    },
    2026: {
        "META_DATA_EXPORT": "name value",
        "StringIds": "id value",
        "NVTX_EVENTS": f"{_NVTX} binaryData",
        "CUPTI_ACTIVITY_KIND_KERNEL": f"tensorSizeMinusOneElements greenContextId {_KERNEL} qmdBulkReleaseDone",
        "CUPTI_ACTIVITY_KIND_RUNTIME": _RUNTIME,
        "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_COPY} virtualAddress copyCount",
        "CUPTI_ACTIVITY_KIND_MEMSET": _FILL,
        "TARGET_INFO_GPU": _GPU,
    },
}
"""Year of Nsight Systems → table → its columns, those that a reader may look at and some that it must pass over."""


class Export:
    """An export in the making; `write` puts it into a file. Texts are kept once, as StringIds does."""

    def __init__(self, year: int = 2026) -> None:
        self.tables = dict(TABLES[year])
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self._texts: dict[str, int] = {}

    def text(self, value: str) -> int:
        """The id of a text."""
        return self._texts.setdefault(value, 100 + len(self._texts))

    def add(self, table: str, **values: Any) -> None:
        """One row of any table."""
        self.rows.setdefault(table, []).append(values)

    def push(self, text: str, start: int, end: int | None, thread: int = MAIN, process: int = PROCESS) -> None:
        """A push/pop range of the default domain."""
        tid = process << 24 | thread
        self.add("NVTX_EVENTS", start=start, end=end, eventType=59, text=text, globalTid=tid, domainId=0)

    def in_domain(self, number: int, name: str, start: int, end: int | None, kind: int = 60) -> None:
        """A range of another domain, its name a registered text."""
        tid = PROCESS << 24 | MAIN
        where = {"textId": self.text(name), "globalTid": tid, "domainId": number}
        self.add("NVTX_EVENTS", start=start, end=end, eventType=kind, **where)

    def domain(self, number: int, name: str) -> None:
        """The creation of a domain."""
        self.add("NVTX_EVENTS", start=0, eventType=75, text=name, globalTid=PROCESS << 24 | MAIN, domainId=number)

    def launch(
        self,
        correlation: int,
        start: int,
        end: int,
        thread: int = MAIN,
        process: int = PROCESS,
        name: str = "cudaLaunchKernel_v7000",
    ) -> None:
        """A call of the runtime."""
        where = {"globalTid": process << 24 | thread, "correlationId": correlation, "nameId": self.text(name)}
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, eventClass=0, returnValue=0, **where)

    def kernel(self, name: str, correlation: int, start: int, end: int, process: int = PROCESS, **more: Any) -> None:
        """A kernel."""
        axes = dict(zip(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), (4, 2, 1, 64, 1, 1), strict=True))
        named = {"demangledName": self.text(name), "shortName": self.text(name[:4])}
        where = {"deviceId": 0, "streamId": 7, "correlationId": correlation, "globalPid": process << 24}
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, **{**where, **named, **axes, **more})

    def write(self, path: Path, without: Iterable[str] = (), drop: Iterable[str] = ()) -> Path:
        """The file. without: tables that are left out. drop: columns that are left out of every table."""
        for value, number in self._texts.items():
            self.add("StringIds", id=number, value=value)
        with sqlite3.connect(path) as connection:
            for table, listed in self.tables.items():
                if table in set(without):
                    continue
                columns = [name for name in listed.split() if name not in set(drop)]
                quoted = ", ".join(f'"{name}"' for name in columns)
                connection.execute(f'CREATE TABLE "{table}" ({quoted})')
                marks = ", ".join("?" * len(columns))
                rows = [[row.get(name) for name in columns] for row in self.rows.get(table, [])]
                connection.executemany(f'INSERT INTO "{table}" ({quoted}) VALUES ({marks})', rows)
        connection.close()
        return path
