"""From a file to options and back, without loss: keys that are not ours, comments and order stay."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from notebook_accel.config import accelerate_names as names
from notebook_accel.config import yaml
from notebook_accel.config.schema import OPTIONS, RunConfig, Source
from notebook_accel.config.values import NEVER, from_text, pairs, seconds, word, words
from notebook_accel.config.yaml import Document
from notebook_accel.errors import ConfigError

_CLOSE = 0.75  # how alike a key must be to one of ours to be taken for a slip

Found = dict[str, tuple[Any, Source]]


def values_of(document: Document) -> Found:
    """The options that a document sets, and where each stands. Raises `ConfigError` for what looks like a slip."""
    found: Found = {}
    for key, option, value in names.old_keys(document.values):
        found[option] = (value, _source(document, key))
    _take(document, None, document.values, found, passed=("fp16",))
    for section in names.SECTIONS.values():
        part = document.values.get(section)
        if isinstance(part, Mapping):
            _take(document, section, part, found)
        elif part is not None:
            _fail(document, (section,), f"`{section}` is a section: write its options below it, indented")
    kind = found.get("distributed_type")
    plain = {name: value for name, (value, _) in found.items()}
    if kind is not None and names.says_nothing(kind[0], plain):
        del found["distributed_type"]  # it follows from the rest, and must not outlive a change of it
    return found


def _take(
    document: Document, section: str | None, part: Mapping[str, Any], found: Found, passed: tuple[str, ...] = ()
) -> None:
    known = names.keys_of(section)
    for key, value in part.items():
        name = known.get(key)
        if name is not None:
            given, value = value, names.from_file(name, _converted(name, value))
            if value is not None or (given is not None and OPTIONS[name].kind == "seconds"):
                where = (key,) if section is None else (section, key)
                found[name] = (value, _source(document, *where))
        elif key not in (*names.SECTIONS.values(), *passed):
            _unknown(document, section, key, value, known)


def _converted(name: str, value: Any) -> Any:
    """A file may hold `"true"` or `'2'` where true or 2 is meant."""
    option = OPTIONS[name]
    if option.kind == "choice" and value is False and "no" in option.choices:
        return "no"  # what other YAML readers make of an unquoted no
    return from_text(option.kind, value) if isinstance(value, str) else value


def _unknown(document: Document, section: str | None, key: str, value: Any, known: Mapping[str, str]) -> None:
    """Sections of other tools are left alone; everything else is a slip."""
    if key in names.DROPPED:
        where = (key,) if section is None else (section, key)
        _fail(document, where, f"`{key}` is of an older version of Accelerate, and nothing reads it now: remove it")
    candidates = [*known, *(names.SECTIONS.values() if section is None else ())]
    close = difflib.get_close_matches(key, candidates, n=1, cutoff=_CLOSE)
    if isinstance(value, Mapping) and section is None and not close:
        return
    elsewhere = next((name for name in names.SECTIONS.values() if key in names.keys_of(name)), None)
    if elsewhere is not None and section != elsewhere:
        hint = f"it belongs into the section `{elsewhere}`"
    else:
        hint = f"did you mean `{close[0]}`?" if close else "known are " + ", ".join(sorted({*known}))
    where = (key,) if section is None else (section, key)
    _fail(document, where, f"there is no option `{key}`{f' in `{section}`' if section else ''}; {hint}")


def _fail(document: Document, keys: tuple[str, ...], reason: str) -> None:
    yaml.fail(document.path, document.line(*keys), reason)


def _source(document: Document, *keys: str) -> Source:
    return Source("file", f"{document.path or 'the YAML text'}, line {document.line(*keys)}")


def text_of(config: RunConfig, document: Document | None = None, path: Path | None = None) -> str:
    """A configuration as a file: what was set, in `document`'s words and order where it comes from one."""
    tree = document.tree if document is not None else CommentedMap()
    here = values_of(document) if document is not None else {}
    wanted = config.named()
    wanted.setdefault("compute_environment", config.compute_environment)
    for name in here:
        if name not in wanted:
            _remove(tree, name)
    if "distributed_type" not in wanted:
        wanted["distributed_type"] = names.implied_kind(wanted)
        _keep_kind(tree, wanted, names.implied_kind({name: value for name, (value, _) in here.items()}))
    for name in sorted(wanted, key=_order):
        value = wanted[name]
        if name not in here or not _same(name, here[name][0], value):
            _put(tree, name, value)
    return yaml.dump(tree, path)


def _same(name: str, written: Any, value: Any) -> bool:
    """Whether what a file says is read as `value`: then its own way of writing it stays."""
    if OPTIONS[name].choices:
        return str(written).lower() == str(value).lower()
    return any(read(written) == value for read in (lambda it: it, word, words, seconds, pairs))


def _keep_kind(tree: CommentedMap, wanted: dict[str, Any], before: str) -> None:
    """Leave the line as it is where it says the same, or where nothing has changed that it follows from."""
    written = str(tree.get("distributed_type", "")).upper()
    if written and wanted["distributed_type"] in (written, before):
        del wanted["distributed_type"]


def _order(name: str) -> tuple[int, int, str]:
    """As Accelerate's files go: what it needs, then the rest by name, then sections."""
    section, key = names.place_in_file(name)
    return (0 if name in names.REQUIRED else 1, 0 if section is None else 1, key)


def _put(tree: CommentedMap, name: str, value: Any) -> None:
    section, _ = names.place_in_file(name)
    if section is not None and not isinstance(tree.get(section), CommentedMap):
        tree[section] = CommentedMap()
    part = tree if section is None else tree[section]
    spelled = next((key for key in names.spellings(name) if key in part), names.spellings(name)[0])
    if name == "dynamo_backend" and name in tree:
        del tree[name]  # the old place of it
    part[spelled] = yaml.scalar(NEVER[0] if value is None else value)


def _remove(tree: CommentedMap, name: str) -> None:
    section, _ = names.place_in_file(name)
    part = tree if section is None else tree.get(section)
    for key in names.spellings(name):
        if isinstance(part, CommentedMap) and key in part:
            del part[key]
    if name == "mixed_precision" and "fp16" in tree:
        del tree["fp16"]
    if section is not None and part is not None and not part:
        del tree[section]


def write(path: Path, text: str) -> None:
    """Replace the file in one step, so that nobody reads half of it. Makes the folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.resolve()
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            if target.exists():
                os.chmod(temporary, target.stat().st_mode & 0o777)
            else:
                os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ConfigError(f"The configuration cannot be written to {path}: {error.strerror}.") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
