"""Hot swaps in a script: a definition that took the place of another one stands there, and is in use from then on."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_LAMBDAS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass
class Draft:
    """The code of a cell on its way into a script."""

    title: str
    code: str
    ranks: tuple[int, ...]
    merged: tuple[str, ...] = ()
    """Functions and classes that took the place of what had their names before, in the session."""


def merge(drafts: Sequence[Draft], known: Collection[str]) -> None:
    """Move definitions that replaced others to where these stood. `known` are names that are there from the beginning.

    The last of several wins. One that needs, while it is defined, what is made only later stays where it is; so does
    one that was run on other ranks than the first.
    """
    for name in dict.fromkeys(name for draft in drafts for name in draft.merged):
        for chain in _chains(name, drafts):
            before = [draft.code for draft in drafts[: drafts.index(chain[0])]]
            _move(name, chain, {*known, *vars(builtins)}.union(*map(_made, before)))


def _chains(name: str, drafts: Sequence[Draft]) -> list[list[Draft]]:
    """The cells that define this name, those together that changed one and the same object."""
    chains: list[list[Draft]] = []
    for draft in drafts:
        if _definition(draft.code, name) is not None:
            if chains and name in draft.merged and draft.ranks == chains[-1][0].ranks:
                chains[-1].append(draft)
            else:
                chains.append([draft])
    return chains


def _move(name: str, chain: Sequence[Draft], known: set[str]) -> None:
    """Put the last definition of a chain in the place of the first, and drop the others, if it can be there."""
    first, last = chain[0], chain[-1]
    early, late = _definition(first.code, name), _definition(last.code, name)
    if len(chain) == 1 or early is None or late is None:
        return
    if not _needs(late) <= known | _made(_lines(first.code, 0, _begin(early))):
        return
    text = f"# as {last.title} has it\n" + _lines(last.code, _begin(late), late.end_lineno)
    _put(name, first, text)
    for draft in chain[1:]:
        _put(name, draft, "")


def _put(name: str, draft: Draft, text: str) -> None:
    """Put text in the place of a definition."""
    found = _definition(draft.code, name)
    assert found is not None
    draft.code = _lines(draft.code, 0, _begin(found)) + text + _lines(draft.code, found.end_lineno, None)


def _definition(code: str, name: str) -> Definition | None:
    """The last statement of this code that defines the name, if it is one of its outermost."""
    found = [item for item in ast.parse(code).body if isinstance(item, Definition) and item.name == name]
    return found[-1] if found else None


def _begin(item: Definition) -> int:
    """How many lines stand before a definition and its decorators."""
    return min([item.lineno, *(decorator.lineno for decorator in item.decorator_list)]) - 1


def _lines(code: str, begin: int | None, end: int | None) -> str:
    lines = code.splitlines(keepends=True)[begin:end]
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join(lines)


def _made(code: str) -> set[str]:
    """Names that code makes, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, Definition):
            found.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return found


def _needs(item: Definition) -> set[str]:
    """The names that must be there when this is defined: those in bodies of functions may come later."""
    now = list(_now(item))
    names = [node for node in now if isinstance(node, ast.Name)]
    own = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    own |= {node.name for node in now if isinstance(node, Definition) and node is not item}
    return {node.id for node in names if isinstance(node.ctx, ast.Load)} - own


def _now(node: ast.AST) -> Iterator[ast.AST]:
    """What is evaluated with a definition: all of it but the bodies of functions."""
    yield node
    for field, value in ast.iter_fields(node):
        if field == "body" and isinstance(node, _LAMBDAS):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield from _now(item)
