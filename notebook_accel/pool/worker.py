"""A rank's main loop: set up once, then run one call after another until told to stop.

The same for every starter: whatever made the process hands over a control socket and two pipes.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import multiprocessing.util
import os
import pickle
import signal
import socket
import sys
import threading
import types
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from notebook_accel.pool import ambient, calls, capture, cell, frames, here, offspring, preflight, serialize, shell
from notebook_accel.pool.arena import Arena, announce
from notebook_accel.pool.events import Raised, Returned
from notebook_accel.pool.probe import Probe
from notebook_accel.pool.spec import Cell, Entered, Interrupt, Stop, Task, WorkerSpec
from notebook_accel.pool.wire import Channel


def main(control: socket.socket, stdout: int, stderr: int) -> NoReturn:
    """Be a worker until the pool says stop or is gone. Never returns."""
    code = 1
    try:
        capture.redirect(stdout, stderr)
        Worker(Channel(control)).run()
        code = 0
    except EOFError:
        code = 1  # the notebook is gone: nobody is left to tell
    except BaseException as error:  # noqa: BLE001 - the last resort of a process: say what happened, then end
        print("".join(frames.pack(error).formatted), file=sys.stderr)
    finally:
        capture.flush()
        # Not sys.exit: joining gloo's threads at interpreter exit was seen to hang (a DDP module that
        # outlives its group), and a forked process must not run its parent's exit handlers.
        os._exit(code)


class Worker:
    """One rank: its channel to the pool, its `__main__`, and what it must undo at the end."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._task: int | None = None  # the call that runs
        self._done = 0  # the last one that was answered
        self._press = self._heard = 0  # the newest interrupt of the call that runs, and the one that it was told of
        self._refused: set[int] = set()  # calls that were interrupted before they began
        self._large: int | None = None
        self._main_thread, self._owner = threading.get_ident(), os.getpid()
        self._entered: Entered | None = None
        self._broken: frames.Report | None = None
        signal.signal(signal.SIGINT, self._on_interrupt)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        spec, (probe, *descriptors) = channel.receive_with_descriptors()
        self._spec: WorkerSpec = spec
        self._probe = Probe(
            Channel(socket.socket(fileno=probe)), spec.rank, spec.run_folder, lambda: self._task, self._interrupt
        )
        self._probe.start()  # first of all: setting up may take seconds, in which the notebook may end
        self._calls = serialize.Loader(vars(self._set_up(descriptors)))
        self._probe.entered = self._entered

    def run(self) -> None:
        """Serve calls until told to stop. Raises EOFError when the pool is gone."""
        while True:
            message, descriptors = self._channel.receive_with_descriptors()
            if isinstance(message, Stop):
                return self._end(message.ok)
            self._serve(message, *descriptors)

    def _set_up(self, descriptors: list[int]) -> types.ModuleType:
        here.enter((self._spec.rank, self._spec.world_size))
        main = _stub_main()
        try:
            ambient.apply(self._spec.ambient, self._spec.environment)
            serialize.announce(Path(self._spec.run_folder))
            shell.attach(self._spec.rank, self._channel.send)
            if self._spec.entry is not None:
                module, _, function = self._spec.entry.partition(":")
                place = {**self._spec.place, "listen_fd": descriptors[0] if self._spec.listen_fd else None}
                self._entered = getattr(importlib.import_module(module), function)(place)
        except Exception as error:  # noqa: BLE001 - reported as the outcome of the first call
            self._broken = frames.pack(error)
        return main

    def _serve(self, message: Task | Cell, large: int | None = None) -> None:
        """Run a call or a cell, and answer it; `large` is the file with its large values."""
        rank, number, arena = self._spec.rank, message.number, Arena()
        self._keep(large)
        try:
            answer: Returned | Raised = Returned(rank, number, self._run(message, large, arena))
        except BaseException as error:  # noqa: BLE001 - whatever a call raises is its outcome
            answer = Raised(rank, number, self._broken or frames.pack(self._seen_as(error)))
        if os.getpid() != self._owner:
            _end_child(answer)
        shell.end_call()
        capture.flush()
        self._done = number
        self._channel.send(replace(answer, notes=cell.notes()), arena.descriptors)
        arena.close()

    def _keep(self, large: int | None) -> None:
        """Keep the newest file with large values open, for grandchildren that are spawned: they look into it."""
        if large is not None:
            if self._large is not None:
                os.close(self._large)
            self._large = large
            announce(large)

    def _run(self, message: Task | Cell, large: int | None, arena: Arena) -> bytes:
        """The packed value of a call or a cell."""
        if self._broken is not None:
            raise RuntimeError("this worker could not be set up")
        self._press = self._heard = 0
        self._task = message.number
        try:
            if message.number in self._refused:
                self._refused.discard(message.number)
                raise KeyboardInterrupt
            if isinstance(message, Cell):
                value, known = cell.run(message), serialize.known_classes()
                if not message.values:  # plain text
                    return pickle.dumps(value)
            else:
                value, known = self._call(message, large)
        finally:
            self._task = None
        return preflight.pack_result(value, known, arena)

    def _call(self, task: Task, large: int | None) -> tuple[Any, dict[type, str]]:
        function, args, kwargs = self._calls.load(task.payload, large)
        known = serialize.known_classes()
        return calls.run(function, args, kwargs), known

    def _interrupt(self, request: Interrupt) -> None:
        """Raise `KeyboardInterrupt` in the call that is meant, or have it never begin; called by the probe."""
        if request.task == self._task:
            self._press = request.press
            signal.pthread_kill(self._main_thread, signal.SIGINT)  # ends a system call that it waits in
        elif request.task > self._done:
            self._refused.add(request.task)

    def _on_interrupt(self, signum: int, frame: types.FrameType | None) -> None:
        # Between calls there is nothing of the user's to interrupt, and our own loop must live on. Of one press a
        # second signal must not hit the user's clean-up; a signal without a press is of the user's own making.
        if self._task is None or (self._press and self._press <= self._heard):
            return
        self._heard = self._press
        raise KeyboardInterrupt

    def _seen_as(self, error: BaseException) -> BaseException:
        """The error of a collective that was cut off for an interrupt is the interrupt."""
        if self._heard and isinstance(error, RuntimeError):
            return KeyboardInterrupt().with_traceback(error.__traceback__)
        return error

    def _end(self, ok: bool) -> None:
        if self._entered is not None:
            self._entered.leave(ok)
        if ok:
            threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
            atexit._run_exitfuncs()
            capture.flush_files()


def _end_child(answer: Returned | Raised) -> NoReturn:
    """End a process that a call has forked, and that came back from the call: the rank is its parent.

    As `os.fork` has it in a script: what was raised is printed, and is the exit code.
    """
    code = 0
    if isinstance(answer, Raised):
        text, leaving, code = answer.report.text, answer.report.type_name == "SystemExit", 1
        if leaving and text.lstrip("-").isdigit():
            code = int(text)
        else:
            print(text if leaving else answer.report.formatted, file=sys.stderr)
    capture.flush()
    os._exit(code & 0xFF)


def _stub_main() -> types.ModuleType:
    """A `__main__` for the notebook's definitions, that spawned grandchildren know where to find."""
    main = types.ModuleType("__main__")
    main.__spec__ = offspring.MainSpec(serialize.SPAWNED_MAIN, None)
    main.__builtins__ = sys.modules["builtins"]  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    return main


def after_fork(host: int) -> None:
    """Make a process that was just forked from the host its own: signals, exit handlers, death with the host."""
    os.setpgid(0, 0)
    _die_with_parent(host)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    atexit._clear()
    atexit.register(logging.shutdown)
    atexit.register(multiprocessing.util._exit_function)  # type: ignore[attr-defined]  # ends DataLoader workers


def _die_with_parent(parent: int) -> None:
    """Have the system end this process when its parent dies, however that happens."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
