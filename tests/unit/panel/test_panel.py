"""The panel without a kernel: the form's logic, the widgets as plain objects, and what is written into a notebook."""

from __future__ import annotations

import re
import sys
import time

import pytest

from notebook_accel.config import load, paths
from notebook_accel.config.schema import Machine
from notebook_accel.errors import ConfigError
from notebook_accel.panel import detect, render
from notebook_accel.panel.form import Form
from notebook_accel.panel.panel import ConfigPanel
from notebook_accel.panel.runs import LiveLines
from notebook_accel.pool.events import Output, Partial

CPU = Machine(cpus=2)
GPUS = Machine(8, ("H200", "H200"), "cuda", device_memory=(2**37, 2**37), bf16=True)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("PJRT_DEVICE", "TPU_NAME", "KAGGLE_KERNEL_RUN_TYPE", "COLAB_RELEASE_TAG", "ACCELERATE_USE_CPU"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def panel(monkeypatch):
    """A panel on a machine of two GPUs, with its widgets."""
    pytest.importorskip("ipywidgets")
    monkeypatch.setattr(detect, "machine", lambda config: (GPUS, ""))

    def make(function=None, config=None, machine=GPUS):
        monkeypatch.setattr(detect, "machine", lambda config: (machine, ""))
        made = ConfigPanel(function, (), load.from_any(config, with_environment=False))
        made._make_view()
        return made

    return make


def control(panel, name):
    return next(one for part in panel._view._controls.values() for one in part if one.option.name == name)


def test_a_form_keeps_only_what_can_be():
    form = Form(GPUS)
    form.put({"num_processes": "2"})
    with pytest.raises(ConfigError, match=r"`num_processes=4` \(from the panel\) needs 4 GPUs.*Use 2, or `cpu=True`"):
        form.put({"num_processes": 4})
    assert form.config.num_processes == 2
    form.put({"cpu": True})
    form.put({"num_processes": 4})
    with pytest.raises(ConfigError, match="needs 4 GPUs"):
        form.put({"cpu": False})
    form.put({"num_processes": ""})
    assert form.config.named() == {"cpu": True}
    with pytest.raises(ConfigError, match="Did you mean `num_processes`"):
        form.put({"num_proces": 1})


def test_what_does_not_apply_is_greyed_with_the_reason():
    form = Form(CPU)
    assert form.idle("cpu") == "This machine has no GPU: the CPU is used."
    assert form.idle("machine_rank") == "There is one machine."
    assert Form(GPUS).idle("gpu_ids") is None
    assert form.idle("num_processes") is None


def test_what_the_machine_is():
    around = detect.Surroundings("Kaggle", True, 16 * 2**30)
    assert detect.sentence(GPUS, around) == (
        "8 processors · 16 GiB memory · 2 × H200 (128 GiB each), with bf16 · Kaggle"
    )
    assert detect.sentence(Machine(1), around) == ("1 processor · 16 GiB memory · a TPU (not supported yet) · Kaggle")


def test_colab_kaggle_and_tpus_are_recognised_without_looking_for_gpus(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert detect.surroundings().service == ""
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    assert detect.surroundings().service == "Kaggle"
    monkeypatch.delenv("KAGGLE_KERNEL_RUN_TYPE")
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    monkeypatch.setattr(detect.importlib.util, "find_spec", lambda name: object())
    assert (detect.surroundings().service, detect.surroundings().tpu) == ("Colab", True)


def test_attributes_and_widgets_are_two_views_of_the_same(panel):
    one = panel()
    one.num_processes = 2
    assert control(one, "num_processes").widget.value == "2"
    control(one, "mixed_precision").widget.value = "bf16"
    assert (one.mixed_precision, one.config.mixed_precision) == ("bf16", "bf16")
    assert str(one.config.source("mixed_precision")) == "the panel"
    assert "num_processes" in dir(one)
    with pytest.raises(ConfigError, match="Did you mean `num_processes`"):
        one.num_proceses = 3
    with pytest.raises(AttributeError, match="no 'nothing'"):
        _ = one.nothing


def test_an_invalid_pair_is_refused_at_once_with_the_cure(panel):
    one = panel()
    control(one, "num_processes").widget.value = "4"
    assert control(one, "num_processes").widget.value == ""
    assert re.search("Use 2, or <code[^>]*>cpu=True</code> to rehearse", one._view.message.value)
    control(one, "num_processes").widget.value = "many"
    assert "whole number" in one._view.message.value
    one.cpu = True
    control(one, "mixed_precision").widget.value = "fp8"
    assert control(one, "mixed_precision").widget.value == "no"


def test_controls_are_greyed(panel):
    one = panel()
    assert not control(one, "gpu_ids").widget.disabled
    one.cpu = True
    assert control(one, "gpu_ids").widget.disabled
    assert "This run uses no GPU." in control(one, "gpu_ids").help.value


def test_the_environment_is_used_and_not_saved(panel, home, monkeypatch):
    path = home / "c.yaml"
    path.write_text("mixed_precision: 'no'\nnum_processes: 2\n")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    one = panel()
    one.load(path)
    assert "2 GPU processes, bf16" in repr(one)
    assert load.resolve({}, load.from_any(one)).mixed_precision == "bf16"
    one.save(path)
    assert "mixed_precision: 'no'" in path.read_text()
    one.mixed_precision = "no"
    assert "2 GPU processes, full" in repr(one)
    assert load.resolve({}, load.from_any(one)).mixed_precision == "no"


def test_every_choice_has_words(panel):
    one = panel()
    kind = control(one, "distributed_type").widget
    assert kind.label == "(follows from the others)"
    kind.value = "MULTI_XPU"
    assert one.distributed_type == "MULTI_XPU"
    kind.value = ""
    assert one.config.named() == {}


def test_previews_follow(panel):
    one = panel()
    one.num_processes, one.mixed_precision = 2, "bf16"
    yaml, command, code = (widget.value for widget in one._view._previews)
    assert "num_processes: 2" in yaml
    assert "notebook-accel launch --num_processes 2 --mixed_precision bf16 train.py" in command
    assert "notebook_launcher(train, num_processes=2" in code
    assert yaml.count("<button") == 1
    assert "Copy YAML" in yaml


def test_save_and_load_and_their_errors_are_shown(panel, home):
    one = panel()
    one.num_processes = 2
    one._view._buttons["save"].click()
    assert load.saved().num_processes == 2
    assert "Saved" in one._view.message.value
    bad = home / "bad.yaml"
    bad.write_text("num_processes: 2\nnum_proces: 3\n")
    one._view.path.value = str(bad)
    one._view._buttons["load"].click()
    assert "line 2: there is no option" in one._view.message.value
    bad.write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n")
    one._view._buttons["load"].click()
    assert "FSDP, which is not supported yet" in one._view.message.value
    assert one._view._tabs.get_title(3) == "Fully sharded data parallel"
    assert control(one, "fsdp_version").widget.value == "2"
    one._view._buttons["launch"].click()
    assert "no function" in one._view.message.value


def test_an_accelerate_configuration_is_offered(panel, home):
    (home / "hf/accelerate").mkdir(parents=True)
    (home / "hf/accelerate/default_config.yaml").write_text("mixed_precision: bf16\n")
    one = panel()
    assert one._view._buttons["import"].layout.display is None
    one._view._buttons["import"].click()
    assert one.mixed_precision == "bf16"
    paths.default().parent.mkdir(parents=True)
    paths.default().write_text("")
    assert panel()._view._buttons["import"].layout.display == "none"


def test_the_saved_default_is_where_it_starts(panel):
    load.save(load.resolve({"num_processes": 2}))
    assert panel().num_processes == 2


def test_only_core_widgets(panel):
    import ipywidgets

    one = panel()
    kinds, todo = set(), [one._view.box]
    while todo:
        widget = todo.pop()
        kinds.add(type(widget).__name__)
        todo += getattr(widget, "children", ())
        assert widget._model_module in ("@jupyter-widgets/controls", "@jupyter-widgets/base")
    assert kinds == {"VBox", "HBox", "Tab", "HTML", "Text", "Dropdown", "Checkbox", "Button"}
    assert ipywidgets.__version__[0] in "78"


def test_every_control_has_a_label_and_help(panel):
    for part in panel()._view._controls.values():
        for one in part:
            assert one.widget.description
            assert one.help.value


def rank_function():
    print("hello", flush=True)
    return 5


def test_launch_runs_in_the_background(panel):
    one = panel(rank_function, machine=CPU)
    one.num_processes = 2
    one._view._buttons["launch"].click()
    assert one._view._buttons["launch"].disabled
    assert list(one.wait(60)) == [5, 5]
    assert "[rank 1] hello" in one._view.log.value
    assert "rank_function finished in" in one._view.message.value
    assert one._view._buttons["stop"].disabled
    assert "Last run: rank_function finished" in repr(one)


def sleeping():
    print("asleep", flush=True)
    time.sleep(60)


def test_stop(panel):
    one = panel(sleeping, machine=CPU)
    one.num_processes = 2
    one._view._buttons["launch"].click()
    run = one._run
    deadline = time.monotonic() + 40
    while "asleep" not in one._view.log.value and time.monotonic() < deadline:
        time.sleep(0.05)
    one._view._buttons["launch"].click()
    assert "still running" in one._view.message.value
    began = time.monotonic()
    one._view._buttons["stop"].click()
    run.join(20)
    assert time.monotonic() - began < 10
    assert "was stopped after" in one._view.message.value


def failing():
    raise ValueError("not <b>bold</b>")


def test_a_failure_is_shown_as_text(panel):
    one = panel(failing, machine=CPU)
    one._view._buttons["launch"].click()
    with pytest.raises(ValueError, match="bold"):
        one.wait(60)
    assert "ValueError: not &lt;b&gt;bold" in one._view.message.value


def test_without_widgets_there_is_a_text_form(panel, monkeypatch, capsys):
    one = panel(machine=CPU)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    one._ipython_display_()
    text = capsys.readouterr().out
    assert "ipywidgets is not installed" in text
    assert "panel.num_processes = None" in text
    assert "# This machine has no GPU" in text


def test_the_top_is_readable_without_scripts_and_the_same_each_time(panel):
    one = panel(machine=CPU)
    one.num_processes = 2
    first, second = one._top(), one._top()
    assert first == second
    assert "2 CPU processes, full precision" in first["text/plain"]
    assert "<script" not in first["text/html"]
    assert "2 CPU processes" in first["text/html"]


def test_live_lines_are_drawn_a_few_times_a_second():
    drawn = []
    lines = LiveLines(load.resolve({}), lambda rows, dropped: drawn.append((rows, dropped)))
    for number in range(1000):
        lines.show(Output(0, "stdout", f"line {number}\n"))
        lines.tick()
    lines.show(Partial(1, "stderr", " 50%"))
    lines.finish()
    assert len(drawn) < 5
    assert (len(drawn[-1][0]), drawn[-1][1], drawn[-1][0][-1]) == (401, 600, "[rank 1]  50%")


def test_user_text_is_escaped():
    assert "<b>" not in render.log(["<b>"], 0) + render.message("bad", "<b>") + render.preview("<b>", "x")
