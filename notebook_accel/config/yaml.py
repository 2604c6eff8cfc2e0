"""YAML as data only: read with limits and line numbers, written back with its comments.

A file may come from anywhere. Nothing in it is ever run or built; a broken or hostile one is one `ConfigError`
with the file and the line.
"""

from __future__ import annotations

import datetime
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent, ScalarEvent
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import SingleQuotedScalarString

from notebook_accel.errors import ConfigError

MAX_BYTES = 256 * 1024
MAX_NODES = 10_000
MAX_DEPTH = 20
MAX_NUMBER_DIGITS = 100

# What any YAML reader takes for text without quotes. Older ones read no, on, 1_0 and 12:30 as something else.
_PLAIN = re.compile(r"[A-Za-z./][A-Za-z0-9_./-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", ".inf", ".nan", "~"})


@dataclass
class Document:
    """A parsed file: `tree` with comments, `values` without."""

    tree: CommentedMap
    values: dict[str, Any]
    path: Path | None

    def line(self, *keys: str) -> int:
        """The line, from 1, of a key; of the innermost one that is there."""
        node, line = self.tree, 1
        for key in keys:
            if not isinstance(node, CommentedMap) or key not in node:
                break
            position = (node.lc.data or {}).get(key)
            line = position[0] + 1 if position else line
            node = node[key]
        return line


def read(path: Path) -> Document:
    """The file at `path`. Raises `ConfigError` with file and line."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
    except OSError as error:
        raise ConfigError(f"The configuration {path} cannot be read: {error.strerror}.") from None
    if data is None:
        fail(path, 1, f"it is larger than {MAX_BYTES // 1024} KiB, and is no configuration")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fail(path, data[: error.start].count(b"\n") + 1, "it is not text in UTF-8")
    return parse(text, path)


def parse(text: str, path: Path | None = None) -> Document:
    """The document that `text` is; `path` names it in messages."""
    try:
        _inspect(text, path)
        tree = _yaml().load(text)
    except ConfigError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        fail(path, mark.line + 1 if mark is not None else 1, _reason(error))
    except (YAMLError, ValueError, RecursionError, OverflowError, TypeError, AttributeError) as error:
        line = getattr(error, "line", None)
        fail(path, line or _line_of_control(text), str(error).splitlines()[0] or type(error).__name__)
    tree = CommentedMap() if tree is None else tree
    if not isinstance(tree, CommentedMap):
        fail(path, 1, f"it holds a {'list' if isinstance(tree, CommentedSeq) else 'text'}, and no `key: value` lines")
    return Document(tree, _plain(tree, path, [MAX_NODES]), path)


def fail(path: Path | None, line: int, reason: str) -> NoReturn:
    """Raise the one error that a file gives."""
    raise ConfigError(f"{path or 'The configuration'}, line {line}: {reason}{'' if reason.endswith('?') else '.'}")


def dump(tree: CommentedMap, path: Path | None = None) -> str:
    """The text of a document: JSON where its name says so, else YAML."""
    if path is not None and path.suffix == ".json":
        return json.dumps(_plain(tree, path, [MAX_NODES]), indent=2) + "\n"
    stream = io.StringIO()
    _yaml().dump(tree, stream)
    text = stream.getvalue()
    return "" if text.strip() == "{}" else text


def scalar(value: Any) -> Any:
    """A value so that every YAML reader, also of version 1.1, reads it back as it is."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else SingleQuotedScalarString(value)
    if isinstance(value, (tuple, list)):
        sequence = CommentedSeq(scalar(part) for part in value)
        sequence.fa.set_flow_style()
        return sequence
    if isinstance(value, Mapping):
        return CommentedMap((str(key), scalar(part)) for key, part in value.items())
    return value


class _Representer(RoundTripRepresenter):
    """Writes `null` where ruamel would write nothing."""

    def represent_none(self, data: None) -> Any:
        return self.represent_scalar("tag:yaml.org,2002:null", "null")


_Representer.add_representer(type(None), _Representer.represent_none)


def _yaml() -> YAML:
    yaml = YAML(typ="rt", pure=True)
    yaml.Representer = _Representer
    yaml.preserve_quotes = True
    yaml.allow_duplicate_keys = False
    yaml.width = 4096
    return yaml


def _inspect(text: str, path: Path | None) -> None:
    """Look at the stream of events before anything is built from it."""
    depth = nodes = 0
    for event in _yaml().parse(text):
        line = event.start_mark.line + 1
        nodes += isinstance(event, NodeEvent)
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None):
            fail(path, line, "anchors (&) and aliases (*) have no use in a configuration; write the values out")
        if depth > MAX_DEPTH:
            fail(path, line, f"it is nested more than {MAX_DEPTH} deep")
        if nodes > MAX_NODES:
            fail(path, line, f"it has more than {MAX_NODES} entries")
        if isinstance(event, NodeEvent) and (tag := getattr(event, "tag", None)) not in (None, ""):
            fail(path, line, f"tags have no use in a configuration ({tag}); write plain values")
        if isinstance(event, ScalarEvent) and len(event.value) > MAX_NUMBER_DIGITS and _is_digits(event.value):
            fail(path, line, f"a number of {len(event.value)} digits is too large")


def _is_digits(text: str) -> bool:
    return re.fullmatch(r"[-+]?[0-9a-fA-FxXoO_.+-]+", text) is not None


def _plain(node: Any, path: Path | None, left: list[int]) -> Any:
    """The data of a tree, without comments and styles."""
    left[0] -= 1
    if isinstance(node, Mapping):
        for key in node:
            if not isinstance(key, str):
                fail(path, node.lc.data[key][0] + 1, f"the key {key!r} is not a word")  # type: ignore[attr-defined]
        return {str(key): _plain(value, path, left) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value, path, left) for value in node]
    if node is None or isinstance(node, bool):
        return node
    if isinstance(node, datetime.date):
        return node.isoformat()
    for kind in (int, float, str):
        if isinstance(node, kind):
            return bool(node) if type(node).__name__ == "ScalarBoolean" else kind(node)
    return str(node)


def _reason(error: MarkedYAMLError) -> str:
    problem = (error.problem or error.context or "it is not YAML").splitlines()[0]
    if "duplicate key" in problem:
        name = re.search(r'duplicate key "([^"]*)"', problem)
        return f"the key `{name[1] if name else '?'}` is there twice; keep one of them"
    return f"it is not YAML ({problem})"


def _line_of_control(text: str) -> int:
    """The line of the first control character, which no YAML has."""
    found = re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text)
    return text.count("\n", 0, found.start()) + 1 if found else 1
