"""How an option is written down, and how the surfaces read what was written."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

Surface = Literal["flag", "form", "code"]

GROUPS: dict[str, str] = {
    "basic": "What to run on",
    "processes": "Processes",
    "machines": "Several machines",
    "compile": "Compilation (torch.compile)",
    "fp8": "fp8 precision",
    "parallelism": "Parallelism on a device mesh",
    "fsdp": "Fully sharded data parallel (FSDP)",
    "deepspeed": "DeepSpeed",
    "megatron": "Megatron-LM",
    "mpi": "MPI",
    "tpu": "TPU",
    "sagemaker": "Amazon SageMaker",
}
"""Group: its heading. The first three are for everyone."""

EVERYONE = ("basic", "processes", "machines")


def option(
    default: Any,
    help: str,
    *,
    group: str = "basic",
    env: str | None = None,
    when: str | None = None,
    surfaces: tuple[Surface, ...] = ("flag", "form"),
    **limits: Any,
) -> Any:
    """A field of the schema.

    `help` is one line. `env`: a variable that sets it. `when`: the name of the condition (in `rules`) under which it
    means something. `surfaces`: where it is shown, besides the file, which knows every option; "code" marks an
    argument of `notebook_launcher`.
    """
    extra: dict[str, Any] = {"env": env, "group": group, "when": when, "surfaces": list(surfaces)}
    return Field(default, description=help, json_schema_extra=extra, **limits)


class Options(BaseModel):
    """A set of options: unchangeable, with no room for others, and without guessing what a value might mean."""

    # Validators are built once, for the whole, and not for each part of it.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


@dataclass(frozen=True)
class Option:
    """One option as a surface sees it."""

    name: str
    kind: str
    """bool, int, float, seconds, choice, text, words, truths or mapping."""
    default: Any
    help: str
    choices: tuple[str, ...]
    group: str
    env: str | None
    when: str | None
    surfaces: tuple[str, ...]
    least: int | None
    """The smallest number that it may be."""

    @property
    def for_everyone(self) -> bool:
        """Whether it is among the options that everyone may want, and not of a special set-up."""
        return self.group in EVERYONE


def read(model: type[BaseModel]) -> dict[str, Option]:
    """The options of a model, by name, in the order of the groups."""
    found = [_option(name, info) for name, info in model.model_fields.items()]
    order = list(GROUPS)
    return {option.name: option for option in sorted(found, key=lambda option: order.index(option.group))}


def _option(name: str, info: FieldInfo) -> Option:
    extra = info.json_schema_extra
    assert isinstance(extra, dict)
    kind, choices = _kind(info)
    return Option(
        name,
        kind,
        info.default,
        info.description or "",
        choices,
        str(extra["group"]),
        extra["env"],  # type: ignore[arg-type]
        extra["when"],  # type: ignore[arg-type]
        tuple(extra["surfaces"]),  # type: ignore[arg-type]
        next((limit.ge for limit in _limits(info) if hasattr(limit, "ge")), None),
    )


def _kind(info: FieldInfo) -> tuple[str, tuple[str, ...]]:
    """The kind of a field, and its choices."""
    named = {str(part) for part in _parts(info.annotation)}
    for part in _parts(info.annotation):
        if get_origin(part) is Literal:
            return "choice", get_args(part)
    validators = [getattr(part, "func", None) for part in [*info.metadata, *_metadata(info.annotation)]]
    if any(getattr(function, "__name__", "") == "seconds" for function in validators):
        return "seconds", ()
    for kind, marks in _MARKS.items():
        if any(mark in text for mark in marks for text in named):
            return kind, ()
    return "text", ()


def _limits(info: FieldInfo) -> list[Any]:
    """What bounds a field, wherever in its annotation it stands."""
    marks = [*info.metadata, *_metadata(info.annotation)]
    return [limit for mark in marks for limit in getattr(mark, "metadata", [mark])]


_MARKS = {
    "truths": ("tuple[bool, bool, bool]",),
    "words": ("tuple[str, ...]",),
    "mapping": ("dict[",),
    "bool": ("<class 'bool'>",),
    "int": ("<class 'int'>",),
    "float": ("<class 'float'>",),
}


def _parts(annotation: Any) -> list[Any]:
    """The alternatives of an annotation, without what is annotated to them."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for inner in get_args(annotation) for part in _parts(inner)]
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    return [annotation]


def _metadata(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return list(get_args(annotation)[1:])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for inner in get_args(annotation) for part in _metadata(inner)]
    return []
