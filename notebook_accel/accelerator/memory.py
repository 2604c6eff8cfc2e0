"""Giving memory back, and finding the batch size that fits in it."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable
from typing import Any

import torch

from notebook_accel.errors import ArgumentTypeError, ConfigError

_WORDS = (
    "out of memory",
    "CUDNN_STATUS_NOT_SUPPORTED",  # what cuDNN says when its workspace does not fit
    "can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def give_back() -> None:
    """Free what nothing refers to, and what torch keeps of a GPU's memory for later."""
    clear_device_cache(garbage_collection=True)


def clear_device_cache(garbage_collection: bool = False) -> None:
    """Free what torch keeps of a GPU's memory for later; first collect what nothing refers to, if asked."""
    if garbage_collection:
        gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def release_memory(*objects: Any) -> list[Any]:
    """None for each of `objects`, to be assigned to their names; what they held is free after that.

    Example:
        >>> model, optimizer = release_memory(model, optimizer)
    """
    count = len(objects)
    del objects
    give_back()
    return [None] * count


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory was too small."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
) -> Callable[..., Any]:
    """Decorator: call the function with the largest batch size, as its first argument, that fits in memory.

    It begins with `starting_batch_size`. After each try that runs out of memory the next one has nine tenths
    of it, rounded down, or what `reduce_batch_size_fn()` says. Make models, optimizers and loaders inside the
    function, after `accelerator.free_memory()`. All ranks of a run must come to the same size: use one
    kind of device.

    Raises `RuntimeError` when not even one sample fits.

    Example:
        >>> @find_executable_batch_size(starting_batch_size=256)
        ... def train(batch_size, epochs):
        ...     loader = DataLoader(data, batch_size)
        >>> train(epochs=3)
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
        )
    _check_first_argument(function)

    @functools.wraps(function)
    def with_fitting_size(*args: Any, **kwargs: Any) -> Any:
        give_back()
        size = starting_batch_size
        while size > 0:
            try:
                return function(size, *args, **kwargs)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            # Only here are the frames of the failed try gone, with the tensors in them.
            give_back()
            smaller = int(size * 0.9) if reduce_batch_size_fn is None else reduce_batch_size_fn()
            if smaller >= size:
                raise ConfigError(
                    f"`reduce_batch_size_fn` gave {smaller} after {size} did not fit in memory; it must give less."
                )
            size = smaller
        raise RuntimeError("No executable batch size found, reached zero: not even one sample fits in memory.")

    return with_fitting_size


def _check_first_argument(function: Callable[..., Any]) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        name = getattr(function, "__name__", function)
        raise ArgumentTypeError(f"`{name}` gets the batch size as its first argument: def {name}(batch_size, ...).")
