"""Our `Accelerator` has the peer's names: built, or on the list of what is not built yet."""

from __future__ import annotations

import importlib
import inspect

import pytest

from notebook_accel.accelerator import Accelerator, DistributedType, not_yet

peer = pytest.importorskip("accelerate", reason="the real package is not installed")

# Kept by the peer for old code, or part of how it works inside.
NOT_OURS = {"delayed_fp8_autocast"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_constructor_takes_the_same_arguments_in_the_same_order() -> None:
    ours, theirs = (list(inspect.signature(kind).parameters) for kind in (Accelerator, peer.Accelerator))
    assert ours == [*theirs, "old"]  # spellings that the peer has given up


def test_every_public_name_is_built_or_on_the_list() -> None:
    listed = {*not_yet.METHODS, *not_yet.PROPERTIES}
    assert public(peer.Accelerator) - public(Accelerator) - listed - NOT_OURS == set()
    assert listed & public(Accelerator) == set(), "built: take it off the list"


def test_methods_take_the_same_arguments() -> None:
    for name in sorted(public(peer.Accelerator) & public(Accelerator)):
        theirs, ours = getattr(peer.Accelerator, name), getattr(Accelerator, name)
        if inspect.isfunction(theirs) and list(inspect.signature(theirs).parameters) != ["args", "kwargs"]:
            found = inspect.signature(ours).parameters
            more = {name for name, item in found.items() if item.kind is item.KEYWORD_ONLY}
            known = list(inspect.signature(theirs).parameters)
            assert [argument for argument in found if argument in known or argument not in more] == known, name


def test_kinds_of_set_ups() -> None:
    assert {kind.name: kind.value for kind in peer.DistributedType}.items() <= {
        kind.name: kind.value for kind in DistributedType
    }.items()


MOVED = ("state", "data_loader", "optimizer", "scheduler", "launchers")
MOVED_UTILS = ("utils", "utils.operations", "utils.random", "utils.memory", "utils.dataclasses")


@pytest.mark.parametrize("path", [*MOVED, *MOVED_UTILS])
def test_import_paths_of_the_peer_lead_to_the_same_names(path: str) -> None:
    ours, theirs = (importlib.import_module(f"{package}.{path}") for package in ("notebook_accel", "accelerate"))
    names = {name for name in dir(ours) if not name.startswith("_") and not inspect.ismodule(vars(ours).get(name))}
    assert len(names) >= 1
    assert names <= {*dir(theirs), "DummyOptim", "DummyScheduler"}  # the peer has these where deepspeed is installed
