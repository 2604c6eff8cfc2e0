"""A cell as a script has it: what IPython alone understands put into Python, or refused with a reason."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from typing import Any

HELPERS = {
    "_show": """\
def _show(value):  # what a notebook does with the last line of a cell
    if value is not None:
        print(repr(value))
""",
    "_shell": """\
def _shell(command):  # what a notebook does with !command
    import subprocess

    subprocess.run(command, shell=True)
""",
    "_lines": """\
def _lines(command):  # what a notebook does with name = !command
    import subprocess

    return subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
""",
}
"""Functions that a translated cell may call, by name."""

_FOR_NOTEBOOKS = (
    "matplotlib",
    "load_ext",
    "reload_ext",
    "autoreload",
    "config",
    "pinfo",
    "pinfo2",
    "pdoc",
    "psource",
    "psearch",
    "pip",
    "conda",
    "xmode",
    "who",
    "whos",
    "precision",
    "pylab",
    "colors",
)


class CannotExport(Exception):
    """Why a cell cannot stand in a script."""


def translate(cell: str) -> str:
    """The cell in Python, which may call `HELPERS`. Raises `CannotExport` where there is no way to say the same."""
    from IPython.core.inputtransformer2 import TransformerManager

    code = str(TransformerManager().transform_cell(cell))
    tree = _parse(code)
    if (magic := _cell_magic(tree)) is not None:
        return _translated_cell_magic(*magic)
    _refuse_what_is_async(tree)
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        raise CannotExport("it imports from __future__, which a script does in its first line only")
    code = _replaced(code, [(node, text) for node, text in _calls_of_the_shell(tree)])
    ends_quietly = cell.rstrip().endswith(";") or (tree.body and _is_of_shell(tree.body[-1]))
    return code if ends_quietly else _showing(code)


def indented(code: str) -> str:
    """Code four columns to the right; the lines inside of a text that has several stay as they are."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE"):
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
    lines = code.splitlines(keepends=True)
    return "".join(
        line if number in inside or not line.strip() else "    " + line for number, line in enumerate(lines, 1)
    )


def _parse(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError as error:
        raise CannotExport(f"it is not Python: {error.msg}") from None


def _cell_magic(tree: ast.Module) -> tuple[str, str] | None:
    """Name and text of a cell that begins with %%."""
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        call = _shell_call(tree.body[0].value)
        if call is not None and call[0] == "run_cell_magic":
            return call[1][0], call[1][2]
    return None


def _translated_cell_magic(name: str, body: str) -> str:
    if name == "time":
        return translate(body)
    if name in ("bash", "sh", "!"):
        return f"_shell({body!r})\n"
    raise CannotExport(f"%%{name} has no meaning in a script")


def _refuse_what_is_async(tree: ast.Module) -> None:
    if any(isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)) for node in _outside_functions(tree)):
        raise CannotExport("it awaits something outside of a function; use asyncio.run there")


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _outside_functions(child)


def _shell_call(node: ast.AST) -> tuple[str, list[str]] | None:
    """Of `get_ipython().method("a", …)`: the method and its arguments."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return None
    inner = node.func.value
    if not (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "get_ipython"):
        return None
    return node.func.attr, [str(ast.literal_eval(argument)) for argument in node.args]


def _is_of_shell(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and _shell_call(statement.value) is not None


def _calls_of_the_shell(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """What IPython's own syntax has become, and what a script has in its place."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        call = _shell_call(node)
        if call is not None and isinstance(node, ast.Call):
            yield node, _in_python(*call, alone=id(node) in statements)


def _in_python(method: str, arguments: list[str], *, alone: bool) -> str:
    if method == "system":
        return f"_shell({_text(arguments[0])})"
    if method == "getoutput":
        return f"_lines({_text(arguments[0])})"
    if method != "run_line_magic":
        raise CannotExport(f"get_ipython().{method} has no meaning in a script")
    name, text = arguments[0], arguments[1]
    if alone and name in _FOR_NOTEBOOKS:
        return f"pass  # %{name} {text}".rstrip()
    if alone and name == "time" and "\n" not in text:
        return translate(text + ";").rstrip(";\n")
    if alone and name == "cd":
        return f"__import__('os').chdir(__import__('os').path.expanduser({_text(text.strip())}))"
    if alone and name in ("env", "set_env") and "=" in text:
        key, _, value = text.partition("=")
        return f"__import__('os').environ.update({{{key.strip()!r}: {_text(value.strip())}}})"
    raise CannotExport(f"%{name} has no meaning in a script")


def _text(text: str) -> str:
    """A text as an expression; what stands in braces are expressions for IPython, and so they are in an f-string."""
    if "{" not in text:
        return repr(text)
    try:
        ast.parse(found := f"f{text!r}")
    except SyntaxError:
        raise CannotExport(f"the values in `{text}` cannot be put into a script") from None
    return found


def _showing(code: str) -> str:
    """Code whose last line is an expression, with that shown as a notebook shows it."""
    tree = ast.parse(code)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        return code
    called: Any = getattr(last.value, "func", None)
    if getattr(called, "id", "") in ("print", "display"):
        return code
    return _replaced(code, [(last.value, f"_show({ast.get_source_segment(code, last.value)})")])


def _replaced(code: str, changes: list[tuple[ast.expr, str]]) -> str:
    """Code with other text in the place of some nodes."""
    lines = code.encode().splitlines(keepends=True)
    begins = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    data = code.encode()

    def end_first(change: tuple[ast.expr, str]) -> int:
        return -(begins[change[0].lineno - 1] + change[0].col_offset)

    for node, text in sorted(changes, key=end_first):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin, end = begins[node.lineno - 1] + node.col_offset, begins[node.end_lineno - 1] + node.end_col_offset
        data = data[:begin] + text.encode() + data[end:]
    return data.decode()
