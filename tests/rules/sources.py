"""What the rule tests read: the project's own files, and the imports that stand in a source."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "notebook_accel"


def files(*patterns: str) -> list[str]:
    """Paths, relative to the root, of files that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({name for name in names if (ROOT / name).exists()})


def read(path: str) -> str:
    """The text of one file."""
    return (ROOT / path).read_text(encoding="utf-8")


def package_files() -> list[str]:
    """The package's own Python files."""
    return files(f"{PACKAGE}/*.py")


@dataclass(frozen=True)
class Import:
    """One imported module: `name` in full, and whether it is imported as soon as its file is."""

    line: int
    name: str
    at_once: bool


def imports(path: str, source: str) -> Iterator[Import]:
    """Every module that a file imports, at the top, inside functions, and by `import_module("name")`."""
    yield from _walk(ast.parse(source), _package_of(path), at_once=True)


def _package_of(path: str) -> list[str]:
    """The parts of the package that a file belongs to, against which its relative imports count."""
    return list(Path(path).parent.parts)


def _walk(node: ast.AST, package: list[str], at_once: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        for name in _names(child, package):
            yield Import(child.lineno, name, at_once)  # type: ignore[attr-defined]
        lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _only_for_types(child)
        yield from _walk(child, package, at_once and not lazy)


def _names(node: ast.AST, package: list[str]) -> list[str]:
    """The modules that one statement or call names. `from a import b` may mean the module a.b: both are named."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
        return [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return []


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _only_for_types(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
