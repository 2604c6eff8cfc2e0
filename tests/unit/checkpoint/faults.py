"""Processes that are killed while they write checkpoints, and what the next one finds.

python -m tests.unit.checkpoint.faults FOLDER

Forks children of a process with torch loaded: each is a training that saves, and dies. Prints what it found as JSON.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from notebook_accel import Accelerator, ProjectConfiguration
from notebook_accel.checkpoint import steps
from notebook_accel.errors import CheckpointError

SIZE = 3_000  # numbers in the model: files are written in one part each; the random moments use more
LIMIT = 2


class Run:
    """A training whose weights, optimizer and values all say which save they are of."""

    def __init__(self, folder: Path, size: int = SIZE, flush: bool = True, numbered: bool = True) -> None:
        project = ProjectConfiguration(
            str(folder), automatic_checkpoint_naming=numbered, total_limit=LIMIT, flush=flush
        )
        self.accelerator = Accelerator(cpu=True, project_config=project)
        model = torch.nn.Linear(size, 1, bias=False)
        self.model, self.optimizer = self.accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1.0, 0.5))
        self.mark(0)
        self.model.weight.grad = torch.ones_like(self.model.weight)
        self.optimizer.step()

    def mark(self, number: int) -> None:
        with torch.no_grad():
            self.model.weight.fill_(number)
        for state in self.optimizer.state.values():
            state["momentum_buffer"].fill_(number)
        self.accelerator.values["number"] = number

    def save(self, number: int, folder: str | None = None) -> None:
        self.mark(number)
        self.accelerator.save_state(folder)

    def load(self, folder: str | None = None) -> int:
        """The number of what was loaded; -1 when its parts are of different ones."""
        self.mark(-2)
        self.accelerator.load_state(folder)
        numbers = {*self.model.weight.flatten().tolist(), self.accelerator.values["number"]}
        for state in self.optimizer.state.values():
            numbers |= set(state["momentum_buffer"].flatten().tolist())
        return int(numbers.pop()) if len(numbers) == 1 else -1


def child(work: Callable[[], None]) -> int:
    """Run `work` in a forked process; returns its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def named_steps(run: Run, number: int, folder: str | None = None) -> list[str]:
    """The steps of one save."""
    found: list[str] = []
    with steps.watched(found.append):
        run.save(number, folder)
    return found


def die_at(count: int) -> Callable[[str], None]:
    """Ends the process at the step with this number."""
    left = [count]

    def watch(step: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def at_each_step(folder: Path, target: str | None) -> dict[str, Any]:
    """A save is killed at each of its steps in turn. What is loaded then is the save before, or this one."""
    run = Run(folder, numbered=target is None)
    run.save(1, target)
    run.save(2, target)
    listed, found, lost = named_steps(run, 3, target), [], []
    newest = 3
    for count in range(len(listed)):

        def work(count: int = count, number: int = newest + 1) -> None:
            with steps.watched(die_at(count)):
                run.save(number, target)

        _, status = os.waitpid(child(work), 0)
        loaded = run.load(target)
        found.append((listed[count], os.WTERMSIG(status), loaded))
        if loaded not in (newest, newest + 1) or not os.WIFSIGNALED(status):
            lost.append(found[-1])
        newest = loaded if loaded > 0 else newest
    run.save(newest + 1, target)
    return {"steps": listed, "lost": lost, "last": run.load(target) == newest + 1, "left": left_in(folder)}


def left_in(folder: Path) -> list[str]:
    """What is there beside complete checkpoints."""
    inside = folder / "checkpoints"
    listed = [path.name for path in (inside if inside.is_dir() else folder).iterdir()]
    return sorted(name for name in listed if name.startswith("."))


def at_random_moments(folder: Path, count: int) -> dict[str, Any]:
    """A training that saves all the time is killed `count` times."""
    run = Run(folder, size=300_000, flush=False)
    run.save(0)
    began = time.monotonic()
    run.save(1)
    duration = time.monotonic() - began
    lost, newest, seen = [], 1, set()
    generator = random.Random(0)
    for _ in range(count):
        read, write = os.pipe()

        def work(first: int = newest + 1, done: int = write) -> None:
            for number in range(first, first + 1000):
                run.save(number)
                os.write(done, b"%d\n" % number)

        pid = child(work)
        os.close(write)
        with os.fdopen(read) as told:
            heard = [int(told.readline()) for _ in range(generator.randrange(3))]  # on a busy machine too
            time.sleep(generator.uniform(0.0, 1.2 * duration))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            acknowledged = max([newest, *heard, *map(int, told.read().split())])
        loaded = run.load()
        if loaded not in (acknowledged, acknowledged + 1):
            lost.append((acknowledged, loaded))
        newest = max(loaded, newest)
        seen.add(newest)
    run.save(newest + 1)
    return {"lost": lost, "kills": count, "different": len(seen), "left": left_in(folder), "last": run.load()}


def disk_full(folder: Path) -> dict[str, Any]:
    """No room for the model's file."""
    run = Run(folder, size=100_000)
    run.save(1)
    read, write = os.pipe()

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
        try:
            run.save(2)
        except CheckpointError as error:
            os.write(write, str(error).encode())

    os.waitpid(child(work), 0)
    os.close(write)
    with os.fdopen(read) as told:
        message = told.read()
    return {"message": message, "loaded": run.load(), "left": left_in(folder)}


def main(folder: Path) -> dict[str, Any]:
    return {
        "numbered": at_each_step(folder / "numbered", None),
        "in place": at_each_step(folder / "in place", str(folder / "in place" / "latest")),
        "random": at_random_moments(folder / "random", 30),
        "full": disk_full(folder / "full"),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)  # forked children have none of the threads of this process
    print(json.dumps(main(Path(sys.argv[1]))))
