"""Nothing fails in silence, nothing is left for later, and nobody asks which strategy is running."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest
from sources import package_files, read

LATER = re.compile(r"\b(TODO|FIXME|XXX)\b")


def forbidden(path: str, source: str) -> list[str]:
    """What the house rules do not allow in a source, one line each."""
    found = [*_in_tree(ast.parse(source)), *_in_comments(source)]
    return [f"{path}:{line}: {what}" for line, what in sorted(found)]


def _in_tree(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield node.lineno, "a bare `except:`; name the exceptions"
        elif isinstance(node, ast.ExceptHandler) and all(_does_nothing(part) for part in node.body):
            yield node.lineno, "an exception is swallowed; handle it, or use contextlib.suppress with its type"
        elif isinstance(node, ast.Call) and _suppresses_all(node):
            yield node.lineno, "every exception is swallowed; name the ones that are expected"
        elif isinstance(node, ast.Name) and node.id == "NotImplementedError":
            yield node.lineno, "NotImplementedError; raise NotYetError that says what to use meanwhile"
        elif isinstance(node, ast.Compare) and any(map(_is_type_of_run, [node.left, *node.comparators])):
            yield node.lineno, "a comparison of `distributed_type`; make it a method or a capability of the strategy"
        elif isinstance(node, ast.Match) and _is_type_of_run(node.subject):
            yield node.lineno, "a match on `distributed_type`; make it a method or a capability of the strategy"


def _does_nothing(statement: ast.stmt) -> bool:
    ellipsis = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass) or ellipsis


def _suppresses_all(node: ast.Call) -> bool:
    named = getattr(node.func, "attr", getattr(node.func, "id", "")) == "suppress"
    return named and any(getattr(arg, "id", "") in ("Exception", "BaseException") for arg in node.args)


def _is_type_of_run(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "distributed_type"


def _in_comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) and (match := LATER.search(token.string)):
            yield token.start[0], f"a {match[0]}; do it, or file it"


@pytest.mark.parametrize("path", package_files())
def test_nothing_forbidden(path: str) -> None:
    assert forbidden(path, read(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept:\n    raise",
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept (OSError, Exception):\n    ...",
        "try:\n    f()\nexcept OSError:\n    'never mind'",
        "with contextlib.suppress(Exception):\n    f()",
        "raise NotImplementedError",
        "raise NotImplementedError('later')",
        "x = 1  # TODO: more",
        "def f():\n    '''FIXME'''",
        "if self.distributed_type == DistributedType.FSDP:\n    f()",
        "x = distributed_type in (A, B)",
        "x = A is not state.distributed_type",
        "match state.distributed_type:\n    case 1:\n        f()",
    ],
)
def test_a_violation_is_found(source: str) -> None:
    assert forbidden("module.py", source)


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept OSError as error:\n    raise LaunchError('…') from error",
        "with contextlib.suppress(FileNotFoundError):\n    f()",
        "return_value = self.distributed_type",
        "todo = ['a']",
    ],
)
def test_ordinary_code_is_fine(source: str) -> None:
    assert forbidden("module.py", source) == []
