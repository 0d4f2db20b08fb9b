"""Stands for Spark where a test needs nothing of it but tasks in processes of their own, which die and are tried again."""

import multiprocessing
import threading
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess
from typing import Any

TRIES = 3


class SpawnedTasks:
    """As much of a SparkContext as resident tasks use. `live` are the processes that run now."""

    def __init__(self, tries: int = TRIES) -> None:
        self.tries, self.started = tries, 0
        self.groups: dict[str, BaseProcess] = {}
        self.cancelled: set[str] = set()
        self.of_thread = threading.local()

    @property
    def live(self) -> list[BaseProcess]:
        return list(self.groups.values())

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool = False) -> None:
        assert interruptOnCancel
        self.of_thread.group = group

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.add(group)
        if group in self.groups:
            self.groups[group].kill()

    def parallelize(self, rows: Iterable[Any], parts: int) -> "_Parts":
        assert parts == 1
        return _Parts(self, list(rows))

    def close(self) -> None:
        self.tries = 0
        for process in self.live:
            process.kill()
            process.join()


class _Parts:
    def __init__(self, tasks: SpawnedTasks, rows: list[Any]) -> None:
        self._tasks, self._rows = tasks, rows

    def mapPartitionsWithIndex(self, task: Callable[..., Any]) -> "_Parts":
        self._task = task
        return self

    def collect(self) -> list[Any]:
        tasks, group, failed = self._tasks, self._tasks.of_thread.group, 0
        while failed < tasks.tries and group not in tasks.cancelled:
            process = multiprocessing.get_context("spawn").Process(target=self._task, args=(0, iter(self._rows)), daemon=True)
            process.start()
            tasks.started += 1
            tasks.groups[group] = process
            process.join()
            del tasks.groups[group]
            if process.exitcode == 0:
                return []
            failed += 1
        raise RuntimeError(f"the task has failed {failed} times, or was cancelled")
