"""One schema, four faces: the same configuration as YAML, as a form, as flags and as code; and what they are called."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_accel.cli import options
from notebook_accel.cli.launch import launch
from notebook_accel.config import accelerate_names, code, flags, load, rules
from notebook_accel.config.schema import OPTIONS, Machine, RunConfig
from notebook_accel.errors import ConfigError
from notebook_accel.panel.form import Form, meant

GPUS = Machine(cpus=8, devices=("H200", "H200"), device_kind="cuda")
SNAPSHOT = Path(__file__).with_name("flags_and_keys.json")

TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="\ufeff"), max_size=12)
DURATIONS = st.floats(0.001, 1e6).map(lambda value: round(value, 3))
BY_KIND: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "float": st.floats(0, 1e6),
    "seconds": DURATIONS,
    "text": TEXTS,
    "words": st.lists(TEXTS, max_size=3).map(tuple),
    "truths": st.tuples(st.booleans(), st.booleans(), st.booleans()),
    "mapping": st.dictionaries(TEXTS.filter(bool), st.one_of(st.integers(0, 99), TEXTS), max_size=2),
}


def values_of(name: str) -> st.SearchStrategy[Any]:
    option = OPTIONS[name]
    if option.choices:
        return st.sampled_from(option.choices)
    if option.kind == "int":
        most = {"use_port": 65535, "fsdp_version": 2, "zero_stage": 3}.get(name, 2**31 - 1)
        return st.integers(option.least or 0, most)
    return BY_KIND[option.kind]


@st.composite
def configurations(draw: st.DrawFn) -> RunConfig:
    """Any valid configuration."""
    chosen = draw(st.lists(st.sampled_from(list(OPTIONS)), max_size=8, unique=True))
    return load.resolve({name: draw(values_of(name)) for name in chosen}, kind="form")


def run_cell(text: str) -> RunConfig:
    """What a cell of code would launch with."""
    calls: list[dict[str, Any]] = []
    body = text.replace("from notebook_accel import notebook_launcher", "")
    exec(body, {"train": None, "notebook_launcher": lambda function, **named: calls.append(named)})
    named = dict(calls[0])
    return load.resolve(
        {key: value for key, value in named.items() if key != "config"}, load.from_any(named.get("config", {}))
    )


def plain(config: RunConfig) -> dict[str, Any]:
    return config.model_dump()


@settings(max_examples=150, deadline=None)
@given(configurations())
def test_round_trip(config):
    from_yaml = load.of_text(load.text(config))
    assert plain(from_yaml) == plain(config)
    form = Form(Machine(cpus=2), from_yaml)
    typed = {name: meant(name, form.shown(name)) for name in form.config.named()}
    form = Form(Machine(cpus=2), load.resolve(typed, kind="form"))
    assert plain(form.config) == plain(config)
    from_flags = options.parse(flags.arguments(form.config.named()))
    assert plain(from_flags) == plain(config)
    assert plain(run_cell(code.cell(from_flags))) == plain(config)


def test_every_option_survives_alone():
    for name, option in OPTIONS.items():
        value = (
            option.choices[-1]
            if option.choices
            else {
                "bool": not option.default,
                "int": 2,
                "float": 0.5,
                "seconds": 90.0,
                "text": "x y",
                "words": ("a", "b"),
                "truths": (True, False, True),
                "mapping": {"a": 1},
            }[option.kind]
        )
        config = load.resolve({name: value})
        assert getattr(load.of_text(load.text(config)), name) == value, name
        assert getattr(options.parse(flags.arguments(config.named())), name) == value, name
        assert getattr(run_cell(code.cell(config)), name) == value, name


def test_never_is_a_time_too():
    config = load.resolve({"hang_report": None})
    assert "hang_report: never" in load.text(config)
    assert load.of_text(load.text(config)).hang_report is None
    assert options.parse(["--hang_report", "never"]).hang_report is None


def names() -> dict[str, Any]:
    found = {}
    for name, option in OPTIONS.items():
        section, key = accelerate_names.place_in_file(name)
        found[name] = {
            "key": key if section is None else f"{section}.{key}",
            "flags": flags.FLAGS[name].spellings,
            "kind": option.kind,
            "choices": list(option.choices),
            "default": list(option.default) if isinstance(option.default, tuple) else option.default,
        }
    return {"options": found, "kinds": {name: kind for name, (kind, _) in flags.KINDS.items()}}


def test_flags_and_keys_are_frozen():
    """A change here breaks somebody's file or command: make it on purpose, by writing the file anew."""
    assert json.loads(SNAPSHOT.read_text()) == names()


def test_every_flag_of_accelerate_is_known():
    known = {"-h", "--help"}
    known |= {spelling for parameter in launch.params for spelling in (*parameter.opts, *parameter.secondary_opts)}
    parser = pytest.importorskip("accelerate.commands.launch").launch_command_parser()
    theirs = {text for action in parser._actions for text in action.option_strings if "-" not in text.strip("-")}
    assert sorted(theirs - known) == []


def test_every_option_has_one_line_of_help():
    for option in OPTIONS.values():
        assert option.help.endswith((".", "]", "nvme", "3)")), option.name
        assert len(option.help) < 90, option.name
        assert option.when is None or option.when in rules.CONDITIONS


def test_code_reads_well():
    text = code.cell(load.resolve({"num_processes": 2, "mixed_precision": "bf16", "cpu": True}))
    assert text.endswith('notebook_launcher(train, num_processes=2, mixed_precision="bf16", cpu=True)')
    assert 'config={"num_machines": 2}' in code.cell(load.resolve({"num_machines": 2}))


def test_rules_say_what_to_do():
    def text(**values):
        with pytest.raises(ConfigError) as caught:
            rules.check(
                load.resolve(values), Machine(cpus=8, devices=("H200", "H200"), device_kind="cuda"), script=True
            )
        return str(caught.value)

    assert "Use a multiple of 2" in text(num_processes=3, num_machines=2, cpu=True, main_process_ip="a")
    assert "Use 0 to 1" in text(num_machines=2, machine_rank=2, main_process_ip="a", cpu=True)
    assert "`main_process_ip`" in text(num_machines=2, cpu=True)
    assert "numbers with commas" in text(gpu_ids="a,b")
    assert "names GPU 5" in text(gpu_ids="0,5")
    assert "needs 2 GPUs, this machine has 1" in text(gpu_ids="0", num_processes=2)
    assert math.isclose(rules.count(load.resolve({"gpu_ids": "1"}), Machine(8, ("a", "b"), "cuda")), 1)
