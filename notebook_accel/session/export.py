"""A session's cells as a script that gives the same when it is launched."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from notebook_accel.config import flags, load, rules
from notebook_accel.config.schema import OPTIONS
from notebook_accel.errors import ConfigError
from notebook_accel.session.merging import Draft, merge
from notebook_accel.session.translate import HELPERS, CannotExport, indented, translate

if TYPE_CHECKING:
    from notebook_accel.session.session import Record, Session

_PLACE = {
    "rank": "rank = _state.process_index\n",
    "world_size": "world_size = _state.num_processes\n",
    "device": "device = _state.device\n",
}
_THERE = {*_PLACE, *HELPERS, "accelerator", "display", "__name__", "__file__"}
_IN_SCRIPTS_TOO = {name for name, option in OPTIONS.items() if "flag" in option.surfaces} - {"output", "timeout"}


def write(session: Session, path: str | Path, overwrite: bool) -> Path:
    """Write the cells of a session to a file. Raises `ConfigError` where there is one, or a cell cannot be in it."""
    target = Path(path).expanduser()
    if target.exists() and not overwrite:
        raise ConfigError(f"{target} exists already, and is left as it is. overwrite=True (--overwrite) replaces it.")
    text = script(session.history, session.ranks, command(session, str(target)))
    target.write_text(text, encoding="utf-8")
    return target


def command(session: Session, script: str) -> str:
    """The command line that runs a script on as many processes, with what was chosen for the session."""
    chosen = {name: value for name, value in session.config.named().items() if name in _IN_SCRIPTS_TOO}
    cpu = {"cpu": True} if rules.uses_cpu(session.config, session._plan.machine) else {}
    values = {"num_processes": len(session), **cpu, **chosen}
    return flags.command(load.resolve(values, with_environment=False), script)


def script(history: Iterable[Record], ranks: Sequence[int], launch: str) -> str:
    """The text of the script. Raises `ConfigError`, which names each cell that cannot be in it."""
    drafts: list[Draft | str] = []
    refused: list[str] = []
    for record in history:
        try:
            drafts.append(_draft(record) if record.ok else _left_out(record))
        except CannotExport as reason:
            refused.append(f"  {record.cell.title}: {reason}")
    merge([draft for draft in drafts if isinstance(draft, Draft)], _THERE)
    parts = [_Part.of(draft, ranks) for draft in drafts]
    refused += _unknown(parts)
    if refused:
        raise ConfigError("These cells cannot be put into a script:\n" + "\n".join(refused))
    return _joined(parts, len(ranks), launch)


class _Part:
    """A cell in the script."""

    def __init__(self, title: str, code: str, note: str = "") -> None:
        self.title, self.code, self.note = title, code, note
        names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
        self.read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        self.made = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | _defined(code)

    @classmethod
    def of(cls, draft: Draft | str, ranks: Sequence[int]) -> _Part:
        """A draft as a part, or a note on a cell that is left out."""
        if isinstance(draft, str):
            return cls("", "", draft)
        title, some = draft.title, draft.ranks
        if not draft.code.strip():
            return cls(title, "", f"{title}: what it defines stands above, in the place of what was there before.")
        if some == tuple(ranks):
            return cls(title, draft.code, title)
        condition = f"rank == {some[0]}" if len(some) == 1 else f"rank in {some}"
        return cls(title, f"if {condition}:\n{indented(draft.code)}", title)


def _draft(record: Record) -> Draft:
    """A cell that ended well. Raises `CannotExport`."""
    code = translate(record.cell.code).strip("\n") + "\n"
    return Draft(record.cell.title, code, tuple(record.ranks), record.merged)


def _left_out(record: Record) -> str:
    why = "it has not ended" if record.ok is None else "it failed, or was stopped"
    return f"{record.cell.title} is left out: {why}."


def _defined(code: str) -> set[str]:
    """Names that code makes by other means than an assignment."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
    return found


def _unknown(parts: Sequence[_Part]) -> list[str]:
    """Names that cells use and no cell makes: they were pushed, or made by a call or a cell that is left out."""
    made: set[str] = {*vars(builtins), *_THERE}
    made.update(*(part.made for part in parts))
    if "*" in made:
        return []
    found = ((part, sorted(part.read - made)) for part in parts)
    return [f"  {part.title}: it uses {_missing(names)}" for part, names in found if names]


def _missing(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names))
    if names[0].startswith("_"):
        return f"{shown}, a result that only a notebook keeps"
    return f"{shown}, which no cell here makes: pushed, or made by a call, or by a cell that failed"


def _joined(parts: Sequence[_Part], count: int, launch: str) -> str:
    read, made = set().union(*(part.read for part in parts)), set().union(*(part.made for part in parts))
    place = [line for name, line in _PLACE.items() if name in read]
    helpers = [text for name, text in HELPERS.items() if name in read]
    show = "from IPython.display import display\n\n" if "display" in read - made else ""
    kind = f"{count} rank{'s' if count != 1 else ''}"
    head = f'"""The cells of a notebook\'s session of {kind}. Launch them with:\n\n    {launch}\n"""\n\n{show}'
    blocks = [f"# {part.note}\n{part.code}" for part in parts]
    first = next((index for index, part in enumerate(parts) if _needs_accelerator(parts, index)), None)
    if first is not None:
        blocks.insert(first, "accelerator = Accelerator()\n")
    names = [*(["Accelerator"] if first is not None else []), "PartialState"]
    start = f"from notebook_accel import {', '.join(names)}\n\n_state = PartialState()\n{''.join(place)}"
    end = "_state.destroy_process_group()\n"
    return head + start + "\n" + "\n".join([*("\n" + text for text in helpers), *blocks, end])


def _needs_accelerator(parts: Sequence[_Part], index: int) -> bool:
    """Whether this is the first cell that reads `accelerator`, which none has made."""
    before = any("accelerator" in part.made for part in parts[: index + 1])
    return "accelerator" in parts[index].read and not before
