"""Exceptions across processes: pack in a rank, rebuild in the kernel with the lines of the notebook.

A traceback cannot be pickled, so its frames travel as (file, line, function) and are rebuilt from code
objects that carry those names. The kernel knows the files of its cells, so IPython then shows the rank's
traceback as it shows any other: "Cell In[3], line 5", with the source.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import traceback
import types
from dataclasses import dataclass
from typing import Any

from notebook_accel.errors import RankError
from notebook_accel.pool import ranges, serialize
from notebook_accel.pool.arena import Arena

# Frames of these files are not the user's: they are how a call, or a cell, comes to run.
_OURS = (
    "/notebook_accel/pool/",
    "/notebook_accel/session/inside.py",
    "/IPython/core/interactiveshell.py",
    "/IPython/core/async_helpers.py",
)
_MOST_FRAMES = 60  # of a deep recursion: IPython takes 5 to 15 ms for each that it shows
_KEPT_FRAMES = 12  # of its beginning, and of its end
_LEFT_OUT = "..."  # in the place of a function's name


@dataclass(frozen=True)
class Frame:
    """One line of a traceback; `first`: where its function begins, `span`: what failed (end line, columns)."""

    file: str
    line: int
    function: str
    module: str
    first: int = 1
    span: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Report:
    """An exception, packed: what can be rebuilt of it, and its text in any case."""

    type_name: str
    text: str
    frames: tuple[Frame, ...]
    pickled: bytes | None
    """The exception itself, without its traceback; None where it cannot be pickled."""
    formatted: str
    """The whole traceback as the rank would have printed it."""
    cause: Report | None = None
    context: Report | None = None
    suppress_context: bool = False

    @property
    def headline(self) -> str:
        """Type and text in one line."""
        return f"{self.type_name}: {self.text}" if self.text else self.type_name


def pack(error: BaseException, *, seen: frozenset[int] = frozenset()) -> Report:
    """A report of `error` and of the exceptions behind it, that can be sent anywhere."""
    seen |= {id(error)}
    cause, context = error.__cause__, error.__context__
    return Report(
        type_name=_type_name(error),
        text=_text(error),
        frames=_shortened(_frames(error.__traceback__)),
        pickled=_pickled(error),
        formatted="".join(traceback.format_exception(type(error), error, error.__traceback__)),
        cause=pack(cause, seen=seen) if cause is not None and id(cause) not in seen else None,
        context=pack(context, seen=seen) if context is not None and id(context) not in seen else None,
        suppress_context=error.__suppress_context__,
    )


def rebuild(report: Report, rank: int, world_size: int) -> RankError:
    """The exception of a rank: of its own type and a `RankError`, with the frames it had in the rank."""
    error = _ranked(report, rank, world_size)
    _chain(error, report)
    return error


def plain(report: Report) -> BaseException:
    """The exception behind a report, of its own type alone (for causes and contexts)."""
    error = _unpickled(report) or RankError(report.headline)
    _chain(error, report)
    return error


def _chain(error: BaseException, report: Report) -> None:
    error.__traceback__ = _traceback(report.frames)
    if report.cause is not None:
        error.__cause__ = plain(report.cause)
    if report.context is not None:
        error.__context__ = plain(report.context)
    error.__suppress_context__ = report.suppress_context


def _type_name(error: BaseException) -> str:
    kind = type(error)
    home = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return home + kind.__qualname__


def _text(error: Any) -> str:
    try:
        return str(error.__str__())  # not str(error): that of a `super()` is its own
    except Exception as failure:  # noqa: BLE001 - a broken __str__ must not hide the error it describes
        return f"<str() of this exception raised {type(failure).__name__}>"


def _frames(tb: types.TracebackType | None) -> list[Frame]:
    """The frames below the pool's own."""
    found = []
    while tb is not None:
        code, names = tb.tb_frame.f_code, tb.tb_frame.f_globals
        if not any(part in code.co_filename for part in _OURS):
            module, span = str(names.get("__name__", "")), _span(code, tb.tb_lasti)
            found.append(Frame(code.co_filename, tb.tb_lineno, code.co_name, module, code.co_firstlineno, span))
        tb = tb.tb_next
    return found


def _shortened(found: list[Frame]) -> tuple[Frame, ...]:
    """The frames, with one that says so in the place of most of those of a deep recursion."""
    if len(found) <= _MOST_FRAMES:
        return tuple(found)
    left_out = f"<{len(found) - 2 * _KEPT_FRAMES} frames are left out>"
    return (*found[:_KEPT_FRAMES], Frame(left_out, 1, _LEFT_OUT, ""), *found[-_KEPT_FRAMES:])


def _span(code: types.CodeType, instruction: int) -> tuple[int, int, int] | None:
    """Where in its line an instruction stands (Python 3.11 and later know)."""
    if not hasattr(code, "co_positions"):
        return None
    _, end_line, start, end = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    return None if end_line is None or start is None or end is None else (end_line, start, end)


def _pickled(error: BaseException) -> bytes | None:
    """Type, arguments and attributes as bytes that were seen to load again, else None.

    Not the exception itself: a class whose `__init__` takes other arguments than it passes on pickles, and
    then fails to load.
    """
    args = error.__reduce__()[1] if isinstance(error, OSError) else error.args
    attributes = {name: value for name, value in vars(error).items() if _packed(value) is not None}
    sendable = tuple(value if _packed(value) is not None else repr(value) for value in args)
    return _packed((type(error), sendable, attributes))


def _packed(value: Any) -> bytes | None:
    """A value as bytes that were seen to load again, else None."""
    try:
        with contextlib.closing(Arena()) as arena:
            packed = serialize.pack_value(value, serialize.known_classes(), arena)
            small = not arena.descriptors  # an error that drags a large tensor along arrives without it
            serialize.load_value(packed) if small else None
    except Exception:  # noqa: BLE001 - user classes may raise anything here; the text of the error still travels
        return None
    return packed if small else None


def _unpickled(report: Report, *mixed_in: type[BaseException]) -> BaseException | None:
    """The exception of a report, with more bases if asked for; None where its class does not allow it."""
    if report.pickled is None:
        return None
    try:
        kind, args, attributes = serialize.load_value(report.pickled)
        builtin = next(base for base in kind.__mro__ if base.__module__ == "builtins")
        if mixed_in and not issubclass(kind, mixed_in):
            names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
            kind = type(kind.__name__, (*mixed_in, kind), names)
        error = builtin.__new__(kind, *args)
        builtin.__init__(error, *args)  # fills what lives outside __dict__, such as OSError.errno
        error.__dict__.update(attributes)
    except Exception:  # noqa: BLE001 - as in _pickled: the kernel may lack what the rank had
        return None
    return error if isinstance(error, BaseException) else None


def _ranked(report: Report, rank: int, world_size: int) -> RankError:
    error = _unpickled(report, _Ranked)
    if not isinstance(error, RankError):
        # By its name at least, so that the cell shows what was raised.
        error = type(report.type_name.rpartition(".")[2], (_Ranked,), {"__module__": "builtins"})(report.text)
    error.rank, error.world_size = rank, world_size
    error.by_rank = {rank: error}
    return error


class _Ranked(RankError):
    """Adds the ranks to the text of the user's own exception."""

    def __str__(self) -> str:
        text = _text(super(RankError, self))  # that of the user's class, next in the order of bases
        if self.rank is None:
            return text
        where = f"{text}  [{ranges.words(self.ranks or (self.rank,))} of {self.world_size}]"
        return "\n  ".join((where, *self.others))


def _traceback(frames: tuple[Frame, ...]) -> types.TracebackType | None:
    """A traceback whose frames name the files, lines and functions of `frames`."""
    chain = None
    for frame in reversed(frames):
        if frame.function == _LEFT_OUT:
            serialize.show_sources({frame.file: "# more calls like those above and below\n"})
        lived = _frame_object(frame)
        chain = types.TracebackType(chain, lived.tb_frame, lived.tb_lasti, frame.line)
    return chain


def _frame_object(frame: Frame) -> types.TracebackType:
    """The traceback entry of a frame that ran code with this frame's names and position."""
    end_line, start, end = frame.span or (frame.line, 0, 0)
    shift = frame.first - 1  # the code below begins at line 1, and is moved to where the function begins
    where = {
        "lineno": max(frame.line - shift, 1),
        "end_lineno": max(end_line, frame.line) - shift,
        "col_offset": start,
        "end_col_offset": end,
    }
    raising = ast.Raise(exc=ast.Name("RuntimeError", ast.Load(), **where), cause=None, **where)
    code = compile(ast.Module(body=[raising], type_ignores=[]), frame.file, "exec")
    code = code.replace(co_name=frame.function, co_firstlineno=frame.first)
    if hasattr(code, "co_qualname"):  # Python 3.11 and later show it
        code = code.replace(co_qualname=frame.function)  # type: ignore[call-arg]
    try:
        exec(code, {"__name__": frame.module, "__file__": frame.file})
    except RuntimeError as error:
        lived = error.__traceback__.tb_next if error.__traceback__ else None
    assert lived is not None
    return lived
