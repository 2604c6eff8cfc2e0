"""Our trackers have the peer's names, methods and arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from notebook_accel import Accelerator, tracking

peer = pytest.importorskip("accelerate.tracking", reason="the real package is not installed")


def methods(kind: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(peer.LOGGER_TYPE_TO_CLASS))
def test_each_class_has_the_methods_and_arguments_of_the_peer(name: str) -> None:
    theirs, ours = peer.LOGGER_TYPE_TO_CLASS[name], tracking.LOGGER_TYPE_TO_CLASS[name]
    assert (ours.__name__, ours.name, ours.requires_logging_directory) == (
        (theirs.__name__, theirs.name, theirs.requires_logging_directory)
    )
    for method, original in methods(theirs).items():
        arguments = list(inspect.signature(original).parameters)
        assert list(inspect.signature(getattr(ours, method)).parameters) == arguments, method
    wanted = [item for item in inspect.signature(theirs).parameters if item not in ("_blank", "kwargs")]
    assert set(wanted) <= set(inspect.signature(ours).parameters)
    assert isinstance(inspect.getattr_static(ours, "tracker"), property)


def test_names_of_trackers() -> None:
    theirs = {item.name: item.value for item in peer.LoggerType}
    assert theirs.items() <= {item.name: item.value for item in tracking.LoggerType}.items()


def test_a_tracker_written_for_the_peer_works_here() -> None:
    seen: list[Any] = []

    class Own(tracking.GeneralTracker):
        name = "own"
        requires_logging_directory = False

        @tracking.on_main_process
        def __init__(self, run_name: str) -> None:
            self.run_name = run_name

        @property
        def tracker(self) -> str:
            return self.run_name

        @tracking.on_main_process
        def store_init_configuration(self, values: dict[str, Any]) -> None:
            seen.append(values)

        @tracking.on_main_process
        def log(self, values: dict[str, Any], step: int | None = None) -> None:  # type: ignore[override]
            seen.append((values, step))

    accelerator = Accelerator(cpu=True, log_with=Own("run"))
    accelerator.init_trackers("project", {"a": 1})
    accelerator.log({"b": 2}, step=3)
    assert accelerator.get_tracker("own", unwrap=True) == "run"
    accelerator.end_training()
    assert seen == [{"a": 1}, ({"b": 2}, 3)]
