"""Environment variables, versions, packages and small tools, by the functions that existing code imports."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from notebook_accel.config import basic, installed, tools, variables, versions
from notebook_accel.errors import ConfigError


def test_words_for_yes_and_no(monkeypatch: pytest.MonkeyPatch) -> None:
    assert variables.str_to_bool("Yes") == 1
    assert variables.str_to_bool("off", to_bool=True) is False
    with pytest.raises(ConfigError, match="invalid truth value 'maybe'"):
        variables.str_to_bool("maybe")
    monkeypatch.setenv("NA_FLAG", "on")
    assert variables.parse_flag_from_env("NA_FLAG")
    assert not variables.parse_flag_from_env("NA_OTHER")


def test_numbers_and_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NA_FIRST", "-1")
    monkeypatch.setenv("NA_SECOND", "3")
    assert variables.get_int_from_env(["NA_NONE", "NA_FIRST", "NA_SECOND"], 7) == 3
    assert variables.get_int_from_env(["NA_NONE", "NA_FIRST"], 7) == 7
    assert variables.parse_choice_from_env("NA_SECOND") == "3"
    assert variables.parse_choice_from_env("NA_NONE") == "no"
    monkeypatch.setenv("NA_FIRST", "many")
    with pytest.raises(ConfigError, match="NA_FIRST='many' is read as a whole number"):
        variables.get_int_from_env(["NA_FIRST"], 7)


def test_a_patched_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NA_KEPT", "old")
    with variables.patch_environment(na_kept=1, na_new="x"):
        assert (os.environ["NA_KEPT"], os.environ["NA_NEW"]) == ("1", "x")
    assert os.environ["NA_KEPT"] == "old"
    assert "NA_NEW" not in os.environ


def test_a_cleared_environment_is_put_back() -> None:
    before = dict(os.environ)
    with variables.clear_environment():
        assert not os.environ
        os.environ["NA_NEW"] = "x"
    assert dict(os.environ) == before


def test_what_a_test_sets_is_purged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_KEPT", "old")

    def set_some() -> str:
        os.environ.update(ACCELERATE_KEPT="new", ACCELERATE_NEW="x", NA_OTHER="stays")
        return "done"

    assert variables.purge_accelerate_environment(set_some)() == "done"
    assert os.environ["ACCELERATE_KEPT"] == "old"
    assert "ACCELERATE_NEW" not in os.environ
    assert os.environ.pop("NA_OTHER") == "stays"

    @variables.purge_accelerate_environment
    class Base:
        def test_one(self) -> None:
            os.environ["ACCELERATE_NEW"] = "x"

    class Derived(Base):
        def test_two(self) -> None:
            os.environ["ACCELERATE_NEW"] = "y"

    Derived().test_one()
    Derived().test_two()
    assert "ACCELERATE_NEW" not in os.environ


def test_lines_for_a_shell() -> None:
    with pytest.warns(UserWarning, match="Skipping BAD=a b"):
        lines = variables.convert_dict_to_env_variables({"GOOD": "1", "BAD": "a b"})
    assert lines == ["GOOD=1\n"]


def test_versions() -> None:
    assert versions.compare_versions("torch", ">=", "2.4")
    assert versions.compare_versions("1.10.0", ">", "1.9")
    assert not versions.is_torch_version("<", "2.4")
    with pytest.raises(ConfigError, match="`operation` must be one of >, >=, ==, !=, <=, <"):
        versions.compare_versions("torch", "~=", "2")


def test_an_old_kernel_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions.platform, "system", lambda: "Linux")
    monkeypatch.setattr(versions.platform, "release", lambda: "4.19.0-13-amd64")
    with pytest.warns(UserWarning, match=r"kernel is 4\.19\.0\. Before 5\.5\.0"):
        versions.check_os_kernel()


def test_packages_are_found_without_importing_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed.is_transformers_available()
    assert installed.version_of("yaml", "PyYAML", "pyyaml") is not None
    (tmp_path / "wandb").mkdir()  # a folder of results, say, is no package
    (tmp_path / "wandb" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not installed.is_wandb_available()
    assert not installed.is_rich_available()

    @installed.torchao_required
    def convert() -> str:
        return "converted"

    monkeypatch.setattr(installed, "is_torchao_available", lambda: False)
    with pytest.raises(ImportError, match="`convert` needs torchao"):
        convert()
    monkeypatch.setattr(installed, "is_torchao_available", lambda: True)
    assert convert() == "converted"


def test_small_tools() -> None:
    assert tools.merge_dicts({"a": {"b": 1}, "c": 2}, {"a": {"d": 3}}) == {"a": {"b": 1, "d": 3}, "c": 2}
    assert tools.recursive_getattr(Path("/x/y.txt"), "parent.name") == "x"
    assert [tools.convert_bytes(size) for size in (5, 1536, 3 * 1024**3, 2**60)] == [
        "5 bytes",
        "1.5 KB",
        "3.0 GB",
        "1024.0 PB",
    ]
    assert tools.get_pretty_name(Path) == "Path"
    assert tools.get_pretty_name(3) == "int"
    assert tools.are_libraries_initialized("pytest", "not_there") == ["pytest"]


def test_ports() -> None:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        listening.listen()
        port = listening.getsockname()[1]
        assert tools.is_port_in_use(port)
    assert not tools.is_port_in_use(port)
    assert 1024 <= tools.get_free_port() <= 65535


def test_a_first_configuration(tmp_path: Path) -> None:
    target = tmp_path / "config.yaml"
    assert basic.write_basic_config("BF16", target) == target
    assert "mixed_precision: bf16" in target.read_text()
    with pytest.warns(UserWarning, match="it stays as it is"):
        assert basic.write_basic_config("no", target) is False
    with pytest.raises(ConfigError, match="fp7"):
        basic.write_basic_config("fp7", tmp_path / "other.yaml")
