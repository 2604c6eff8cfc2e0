"""What can be done with some ranks of a session, or with all: run cells, make calls, move variables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ArgumentTypeError, CannotTravelError, ConfigError
from notebook_accel.pool import preflight, serialize
from notebook_accel.pool.pending import RankResults
from notebook_accel.pool.serialize import Packed
from notebook_accel.session import inside, parts, select, source

if TYPE_CHECKING:
    from notebook_accel.session.session import Session


class Members:
    """Some ranks of a session: `session[0]`, `session[1:3]`, `session[[0, 2]]`, `session["!0"]`."""

    def __init__(self, session: Session, ranks: Sequence[int]) -> None:
        self._session, self.ranks = session, tuple(ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def __getitem__(self, wanted: Any) -> Members:
        return Members(self._session, select.ranks(wanted, self.ranks))

    def run(
        self,
        code: str,
        ranks: Any = None,
        *,
        wait: bool = True,
        timeout: float | str | None = None,
        output: str | None = None,
        values: bool = False,
        first_line: int = 1,
        count: int | None = None,
    ) -> Any:
        """The text of the last expression of a cell on each rank (None where it shows nothing).

        The cell is IPython's: `!ls`, `%timeit`, `await`, `display`, figures; its variables stay on the ranks.

        Args:
            code: The cell.
            ranks: A number, a slice, a list, or text such as "0,2-3" or "!0"; all of these by default.
            wait: False returns a `CellHandle` at once; cells on one rank run one after the other.
            timeout: Seconds, or text such as "10min", after which the cell is interrupted.
            output: Whose output to show: "all", "main", "grouped" or "quiet"; by default as the session says.
            values: Give the values themselves, which must be able to travel, instead of their text.
            first_line, count: Which line and number the notebook shows for the code, for tracebacks.

        Raises:
            RankError: A rank failed; the others have kept what they had. RankTimeout: it took too long.
        """
        __tracebackhide__ = True
        if not isinstance(code, str):
            raise ArgumentTypeError(
                f"`code` is a {type(code).__name__}; a cell is text. call(function) runs functions."
            )
        chosen = select.ranks(ranks, self.ranks)
        cell = source.register(code, first_line, count)
        return self._session._run_cell(cell, chosen, wait, timeout, output, values)

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        ranks: Any = None,
        wait: bool = True,
        timeout: float | str | None = None,
        output: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """What `function(*args, **kwargs)` returned on each rank.

        The function may come from the notebook. Its global names are those of the rank where the rank has them,
        else what they are in the notebook.
        """
        __tracebackhide__ = True
        name = getattr(function, "__name__", None) or type(function).__name__
        if not callable(function):
            raise ArgumentTypeError(f"`function` is a {name}, which cannot be called.")
        chosen = select.ranks(ranks, self.ranks)
        return self._session._run_call(name, _pack(function, args, kwargs), chosen, wait, timeout, output)

    def push(self, values: Mapping[str, Any] | None = None, /, *, ranks: Any = None, **named: Any) -> None:
        """Set variables of the ranks; large tensors and arrays are not copied until a rank writes to them."""
        assigned = {**(values or {}), **named}
        for name in assigned:
            _check_name(name)
        packed = preflight.pack(inside.assign, (), assigned)
        self._session._run_call("push", packed, select.ranks(ranks, self.ranks), True, None, "quiet")

    def pull(self, names: str | Iterable[str], ranks: Any = None) -> RankResults:
        """The values of a variable (or expression) on each rank; of several names, a dictionary for each rank."""
        several = [names] if isinstance(names, str) else list(names)
        serialize.show_sources({f"<{text}>": text for text in several})  # for the traceback of one that fails
        results: RankResults = self._call("pull", inside.evaluate, (several,), ranks, output="quiet")
        by_rank = results.by_rank.items()
        if isinstance(names, str):
            return RankResults({rank: values[0] for rank, values in by_rank})
        return RankResults({rank: dict(zip(several, values)) for rank, values in by_rank})

    def scatter(self, name: str, sequence: Any, ranks: Any = None) -> None:
        """Set a variable to a part of `sequence` on each rank: parts of (nearly) equal length, in rank order."""
        _check_name(name)
        chosen = select.ranks(ranks, self.ranks)
        pieces = dict(zip(chosen, parts.split(sequence, len(chosen))))
        for rank, piece in pieces.items():
            self._call("scatter", inside.assign_one, (name, piece), [rank], output="quiet")

    def gather(self, name: str, ranks: Any = None) -> Any:
        """The values of a variable on all ranks, put together in rank order: lists, arrays or tensors."""
        return parts.join(list(self.pull(name, ranks)), name)

    def run_file(
        self,
        path: str | Path,
        args: Sequence[Any] = (),
        ranks: Any = None,
        *,
        wait: bool = True,
        timeout: float | str | None = None,
        output: str | None = None,
    ) -> Any:
        """Run a script on each rank as `python path args` would, with the rank's process group in place."""
        file = Path(path).expanduser().resolve()
        if not file.is_file():
            raise ConfigError(f"`path={str(path)!r}` (from the call) cannot be run: there is no such file.")
        script = functools.partial(inside.run_script, module=False)
        return self._call(file.name, script, (str(file), [str(item) for item in args]), ranks, wait, timeout, output)

    def run_module(
        self,
        name: str,
        args: Sequence[Any] = (),
        ranks: Any = None,
        *,
        wait: bool = True,
        timeout: float | str | None = None,
        output: str | None = None,
    ) -> Any:
        """Run a module on each rank as `python -m name args` would."""
        script = functools.partial(inside.run_script, module=True)
        return self._call(name, script, (name, [str(item) for item in args]), ranks, wait, timeout, output)

    def _call(
        self,
        title: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        ranks: Any = None,
        wait: bool = True,
        timeout: float | str | None = None,
        output: str | None = None,
    ) -> Any:
        __tracebackhide__ = True
        chosen = select.ranks(ranks, self.ranks)
        return self._session._run_call(title, preflight.pack(function, args), chosen, wait, timeout, output)

    def __repr__(self) -> str:
        return f"ranks {list(self.ranks)} of {self._session!r}"


def _pack(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Packed:
    """A call with the predefined names. Raises `CannotTravelError` in the words of the user's own call."""
    try:
        return preflight.pack(inside.call, (function, args, kwargs))
    except CannotTravelError:
        preflight.pack(function, args, kwargs).arena.close()
        raise


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentTypeError(f"{name!r} cannot be the name of a variable.")
