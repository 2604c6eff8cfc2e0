"""Hooks around a module's forward pass that see and may change its keyword arguments, too."""

from __future__ import annotations

import contextlib
import logging
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from notebook_accel.errors import ConfigError

_log = logging.getLogger(__name__)


class ModelHook:
    """What happens around a module's forward pass: override what you need.

    `no_grad = True` runs the forward pass itself without gradients.
    """

    no_grad = False

    def init_hook(self, module: torch.nn.Module) -> torch.nn.Module:
        """Called when the hook is added; returns the module."""
        return module

    def pre_forward(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Called before; returns the arguments to use, as a tuple and a dict."""
        return args, kwargs

    def post_forward(self, module: torch.nn.Module, output: Any) -> Any:
        """Called after; returns the output to use."""
        return output

    def detach_hook(self, module: torch.nn.Module) -> torch.nn.Module:
        """Called when the hook is removed; returns the module."""
        return module

    def forward_failed(self, module: torch.nn.Module, error: Exception) -> None:
        """Called when the forward pass raised `error`; may raise one that says more."""


class SequentialHook(ModelHook):
    """Several hooks, one after the other. What is asked of it beside that, one of them answers."""

    def __init__(self, *hooks: ModelHook) -> None:
        self.hooks = hooks

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name != "hooks":  # libraries look for `weights_map`, `execution_device` ...
            answers = [getattr(hook, name) for hook in self.hooks if hasattr(hook, name)]
            if answers:
                return next((answer for answer in answers if answer is not None and answer is not False), answers[0])
        raise AttributeError(f"none of the hooks in this SequentialHook has {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        # Libraries set `io_same_device` on the hook of a module, whatever that is.
        known = [hook for hook in vars(self).get("hooks", ()) if name in vars(hook)]
        if known:
            setattr(known[0], name, value)
        else:
            super().__setattr__(name, value)

    def init_hook(self, module: torch.nn.Module) -> torch.nn.Module:
        """That of each."""
        for hook in self.hooks:
            module = hook.init_hook(module)
        return module

    def pre_forward(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """That of each, the arguments passing through."""
        for hook in self.hooks:
            args, kwargs = hook.pre_forward(module, *args, **kwargs)
        return args, kwargs

    def post_forward(self, module: torch.nn.Module, output: Any) -> Any:
        """That of each, the output passing through."""
        for hook in self.hooks:
            output = hook.post_forward(module, output)
        return output

    def detach_hook(self, module: torch.nn.Module) -> torch.nn.Module:
        """That of each."""
        for hook in self.hooks:
            module = hook.detach_hook(module)
        return module

    def forward_failed(self, module: torch.nn.Module, error: Exception) -> None:
        """That of each."""
        for hook in self.hooks:
            _tell_of_failure(hook, module, error)


def _uncompiled(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function that exchanges parameters, which torch.compile cannot follow, outside of what it compiles."""
    compiler: Any = sys.modules.get("torch._dynamo")  # not imported for this: without it nothing is compiled
    frames: Any = torch._C._dynamo.eval_frame
    following = getattr(frames, "get_eval_frame_callback", bool)  # older torch does not say: then as if it followed
    if compiler is None or (not torch.compiler.is_compiling() and following() is None):
        return function(*args, **kwargs)
    return compiler.disable(function)(*args, **kwargs)


class OwnForward:
    """The forward pass of a module under its hooks: one that it had been given, or that of its class.

    Libraries know it as `module._old_forward`, and may put another one there.
    """

    def __init__(self, module: torch.nn.Module, given: Callable[..., Any] | None) -> None:
        # Weak: a module that holds its own forward would be a cycle, and keep its weights until it is collected.
        self._module = weakref.ref(module)
        self.given = given

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """That function."""
        if self.given is not None:
            return self.given
        module = self._module()
        if module is None:
            raise ReferenceError("the module of this forward pass is gone")
        return types.MethodType(type(module).forward, module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("__func__", "__self__", "__name__", "__qualname__"):
            return getattr(self.__wrapped__, name)
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnForward, (self._module(), self.given)


class HookedForward:
    """Stands in a module as its `forward`, and calls the module's hook. Pickles and deep-copies with the module."""

    def __init__(self, module: torch.nn.Module, own: OwnForward) -> None:
        self._module, self.own = weakref.ref(module), own

    @property
    def replaced(self) -> Callable[..., Any] | None:
        """What somebody else has put in the place of the module's own forward."""
        found = getattr(self._module(), "__dict__", {}).get("_old_forward", self.own)
        return None if found is self.own else found

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The forward underneath (libraries read its signature)."""
        return self.replaced or self.own.__wrapped__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward, module = self.__wrapped__, self._module()
        hook: Any = getattr(module, "_hf_hook", None)
        if module is None or hook is None:  # removed, while something wrapped around this stays
            return forward(*args, **kwargs)
        args, kwargs = _uncompiled(hook.pre_forward, module, *args, **kwargs)
        try:
            with torch.no_grad() if hook.no_grad else contextlib.nullcontext():
                output = forward(*args, **kwargs)
        except Exception as error:
            _tell_of_failure(hook, module, error)
            raise
        return _uncompiled(hook.post_forward, module, output)

    def __reduce__(self) -> tuple[Any, ...]:
        return HookedForward, (self._module(), self.own)

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__"):  # not __func__: who called that would go past the hook
            return getattr(self.__wrapped__, name)
        raise AttributeError(name)


class Stay:
    """Stands in a model whose weights are in several places for its method `name`, which would move them all."""

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        self._module, self._name = weakref.ref(module), name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module()
        if module is None:
            raise ReferenceError("the model is gone")
        if any(item.device.type == "meta" for item in module.parameters()):
            raise ConfigError(
                f"{type(module).__name__}.{self._name}() would move a model that a device map has put in several "
                "places, some of it out of the way until it runs. It runs where it is: leave the call out. For other "
                "places load it with another device_map, for another dtype with `dtype`."
            )
        _log.warning(
            "%s.%s() moves a model that a device map has spread over devices; its hooks still bring inputs to where "
            "the parts were. Leave the call out, or load it with another device_map.",
            type(module).__name__,
            self._name,
        )
        return getattr(type(module), self._name)(module, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Stay, (self._module(), self._name)


def keep_in_place(module: torch.nn.Module) -> None:
    """Let `module` refuse to be moved as a whole, until its hooks are removed."""
    for name in ("to", "cuda", "xpu", "cpu"):
        if name not in vars(module):
            setattr(module, name, Stay(module, name))


def _tell_of_failure(hook: Any, module: torch.nn.Module, error: Exception) -> None:
    told = getattr(hook, "forward_failed", None)  # other packages' hooks have none
    if told is not None:
        told(module, error)


def add_hook_to_module(module: torch.nn.Module, hook: ModelHook, append: bool = False) -> torch.nn.Module:
    """`module`, which from now on calls `hook` around its forward pass.

    A hook that it has is replaced, or, with `append`, called first.
    """
    old: Any = getattr(module, "_hf_hook", None)
    if append and old is not None:
        hook = SequentialHook(old, _initialised(hook, module))
    else:
        hook.init_hook(module)
    module._hf_hook = hook  # type: ignore[assignment]
    current = vars(module).get("forward")
    if not isinstance(current, HookedForward):
        own = OwnForward(module, current)
        module._old_forward = own  # type: ignore[assignment]
        module.forward = HookedForward(module, own)
    return module


def _initialised(hook: ModelHook, module: torch.nn.Module) -> ModelHook:
    hook.init_hook(module)
    return hook


def remove_hook_from_module(module: torch.nn.Module, recurse: bool = False) -> torch.nn.Module:
    """`module` without its hook; with `recurse` also all modules in it."""
    hook: Any = vars(module).get("_hf_hook")
    if hook is not None:
        hook.detach_hook(module)
        del module._hf_hook
    current = vars(module).get("forward")
    if isinstance(current, HookedForward):
        del module.forward
        if (before := current.replaced or current.own.given) is not None:
            module.forward = before
    vars(module).pop("_old_forward", None)
    for name in [name for name, value in vars(module).items() if isinstance(value, Stay)]:
        delattr(module, name)
    if recurse:
        for child in module.children():
            remove_hook_from_module(child, recurse)
    return module


def remove_hook_from_submodules(module: torch.nn.Module) -> None:
    """Remove the hooks of a module and of all modules in it."""
    remove_hook_from_module(module, recurse=True)
