"""One widget for each option, made from the schema. Core widgets only, as ipywidgets 7.7 and 8 both have them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets as widgets

from notebook_accel.config.schema import OPTIONS, Option
from notebook_accel.panel import render
from notebook_accel.panel.form import Form

LABEL_WIDTH, CONTROL_WIDTH = "150px", "340px"

LABELS = {
    "num_processes": "Processes",
    "mixed_precision": "Mixed precision",
    "cpu": "Use the CPU",
    "output": "Show output of",
    "timeout": "Time limit",
    "gpu_ids": "GPUs",
    "hang_report": "Report hangs after",
    "start_method": "Start workers by",
    "use_port": "Port",
    "num_cpu_threads_per_process": "Threads each",
    "enable_cpu_affinity": "CPU affinity",
    "debug": "Check exchanges",
    "distributed_type": "Kind of run",
    "compute_environment": "Runs on",
    "num_machines": "Machines",
    "machine_rank": "This machine",
    "main_process_ip": "Address",
    "same_network": "Same network",
    "rdzv_backend": "Meet by",
}
WORDS = {"no": "no (fp32)"}
NOT_GIVEN = "(follows from the others)"


class Control:
    """The widget of one option, and the line beside it."""

    def __init__(self, option: Option, changed: Callable[[str, Any], None]) -> None:
        """`changed(name, value)` is called when the person, and not the program, changes it."""
        self.option = option
        self.widget = _widget(option)
        self.help = widgets.HTML(layout=widgets.Layout(margin="2px 0 2px 10px", flex="1 1 200px"))
        self.row = widgets.HBox(
            [self.widget, self.help], layout=widgets.Layout(align_items="center", flex_flow="row wrap", margin="1px 0")
        )
        self._quiet = False
        self._changed = changed
        self.widget.observe(self._observed, names="value")

    def show(self, form: Form) -> None:
        """Bring the widget up to date."""
        option, why = self.option, form.idle(self.option.name)
        with self._quietly():
            self.widget.value = form.shown(option.name)
            if hasattr(self.widget, "placeholder"):
                self.widget.placeholder = form.automatic(option.name)
        self.widget.disabled = why is not None
        self.help.value = render.help_line(why or option.help, why is not None)

    def _observed(self, change: Any) -> None:
        if not self._quiet:
            self._changed(self.option.name, change["new"])

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False


def _widget(option: Option) -> Any:
    common = {
        "description": LABELS.get(option.name, _readable(option.name)),
        "style": {"description_width": LABEL_WIDTH},
        "layout": widgets.Layout(width=CONTROL_WIDTH),
    }
    if option.choices:
        choices = [(WORDS.get(choice, choice), choice) for choice in option.choices]
        # Not None, which a Dropdown shows as nothing at all.
        nothing = [(NOT_GIVEN, "")] if option.default is None else []
        return widgets.Dropdown(options=[*nothing, *choices], value=option.default or "", **common)
    if option.kind == "bool" and option.default is not None:
        return widgets.Checkbox(value=option.default, indent=True, **common)
    return widgets.Text(value="", continuous_update=False, **common)


def _readable(name: str) -> str:
    for prefix in ("parallelism_config_", "megatron_lm_", "deepspeed_", "dynamo_", "fsdp_", "fp8_", "tpu_"):
        name = name.removeprefix(prefix)
    return name.replace("_", " ").capitalize()


def for_group(group: str, changed: Callable[[str, Any], None]) -> list[Control]:
    """The controls of a group of options."""
    return [
        Control(option, changed) for option in OPTIONS.values() if option.group == group and "form" in option.surfaces
    ]
