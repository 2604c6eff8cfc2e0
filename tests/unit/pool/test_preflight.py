"""What cannot travel is found before a process starts, and named."""

from __future__ import annotations

import threading

import pytest

from notebook_accel.errors import CannotTravelError
from notebook_accel.pool import preflight, serialize
from notebook_accel.pool.arena import Arena

lock = threading.Lock()
nested = {"deep": [1, {"lock": threading.Lock()}]}


class Holder:
    def __init__(self):
        self.inner = threading.Lock()


holder = Holder()


def by_value(function):
    """As if it came from a cell: cloudpickle takes functions of `__main__` by value."""
    function.__module__ = "__main__"
    return function


def uses_lock():
    return lock


def uses_it_through_another():
    return by_value(uses_lock)()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: uses_lock, "`uses_lock` uses the notebook variable `lock`"),
        (lambda: _closure(), "uses the outer variable `inside`"),
        (lambda: _default(), "default value"),
        (lambda: _container(), r"notebook variable `nested`\['deep'\]\[1\]\['lock'\]"),
        (lambda: _attribute(), r"notebook variable `holder`\.inner"),
    ],
)
def test_the_variable_is_named(make, named):
    with pytest.raises(CannotTravelError, match=named) as caught:
        preflight.pack(by_value(make()), ())
    assert "_thread.lock cannot be sent to worker processes" in str(caught.value)
    assert "create it inside the function" in str(caught.value)


def _closure():
    inside = threading.Lock()
    return lambda: inside


def _default():
    return lambda kept=lock: kept


def _container():
    return lambda: nested


def _attribute():
    return lambda: holder


def test_the_argument_is_named():
    with pytest.raises(CannotTravelError, match=r"argument 2 of `args`\['x'\]"):
        preflight.pack(print, (1, {"x": (item for item in "abc")}))


def test_an_object_that_refers_to_itself():
    ring: dict = {"lock": threading.Lock()}
    ring["self"] = ring
    with pytest.raises(CannotTravelError, match="argument 1"):
        preflight.pack(print, (ring,))


def test_a_result_is_named():
    with pytest.raises(CannotTravelError, match=r"the result\[1\]: a _thread.lock cannot be sent to the notebook"):
        preflight.pack_result([1, threading.Lock()], {}, Arena())


def test_a_call_arrives_in_the_worker_s_main():
    packed = preflight.pack(by_value(_global_user()), (2,))
    namespace: dict = {"__name__": "__main__"}
    function, args, kwargs = serialize.load_call(packed.payload, namespace)
    assert function(*args, **kwargs) == 2 * factor


factor = 21


def _global_user():
    return lambda value: value * factor
