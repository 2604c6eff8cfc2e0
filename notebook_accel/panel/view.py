"""The panel as widgets: tabs, previews, buttons, messages and the output of runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from notebook_accel.config import fields
from notebook_accel.config.schema import OPTIONS
from notebook_accel.display.clicks import deliver_early
from notebook_accel.panel import controls, render
from notebook_accel.panel.controls import Control
from notebook_accel.panel.form import Form

TABS = ("basic", "processes", "machines")
TITLES = {"basic": "Basics", "processes": "Processes", "machines": "Machines"}
WITHOUT = "(Here is the form, while a kernel runs this notebook.)"
PREVIEWS = ("YAML", "Command line", "Cell of code")


class PanelView:
    """Widgets that show a form. Actions are callables by name: changed, save, load, import, test, launch, stop."""

    def __init__(self, form: Form, actions: dict[str, Callable[..., None]], path: str, offer: str, launches: bool):
        """`path` is where *Save* writes; `offer` a file of Accelerate to import, or ""; `launches`: show *Launch*."""
        self._form, self._changed = form, actions["changed"]
        self._controls: dict[str, list[Control]] = {}
        self._tabs = widgets.Tab()
        self._previews = [widgets.HTML() for _ in PREVIEWS]
        previews = widgets.Tab(children=self._previews)
        for index, title in enumerate(PREVIEWS):
            previews.set_title(index, title)
        self.message = widgets.HTML(layout=widgets.Layout(margin="6px 0"))
        self.log = widgets.HTML()
        self.path = widgets.Text(
            value=path,
            description="File",
            style={"description_width": "40px"},
            layout=widgets.Layout(flex="1 1 260px", width="auto"),
        )
        self._buttons = _buttons(actions)
        self._buttons["launch"].layout.display = None if launches else "none"
        self._buttons["import"].layout.display = None if offer else "none"
        self._buttons["import"].tooltip = offer
        self.box = widgets.VBox(
            [self._tabs, self.message, self._button_rows(), self.log, previews],
            layout=widgets.Layout(max_width="900px", width="100%"),
        )
        self.running(False)
        self.show()

    def show(self) -> None:
        """Bring everything up to date with the form."""
        self._make_tabs()
        for part in self._controls.values():
            for control in part:
                control.show(self._form)
        texts = (self._form.yaml(), self._form.command(), self._form.code())
        for widget, text, label in zip(self._previews, texts, PREVIEWS):
            value = render.preview(text, label)
            if widget.value != value:
                widget.value = value

    def mime_bundle(self) -> dict[str, Any]:
        """What a notebook shows the form by, with words for pages that cannot."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return {"text/plain": WITHOUT, "application/vnd.jupyter.widget-view+json": view}

    def say(self, tone: str, text: str) -> None:
        """Show one message."""
        self.message.value = render.message(tone, text)

    def running(self, going_on: bool) -> None:
        """Which buttons can be pressed."""
        for name in ("launch", "test"):
            self._buttons[name].disabled = going_on
        self._buttons["stop"].disabled = not going_on

    def draw(self, lines: list[str], dropped: int) -> None:
        """Show the last lines of a run."""
        self.log.value = render.log(lines, dropped)

    def _make_tabs(self) -> None:
        """A tab for each group for everyone, and for each special one that the configuration sets something of."""
        named = {OPTIONS[name].group for name in self._form.config.named()}
        groups = [group for group in fields.GROUPS if group in TABS or group in named]
        if list(self._controls) == groups:
            return
        selected = self._tabs.selected_index or 0
        self._controls = {
            group: self._controls.get(group) or controls.for_group(group, self._changed) for group in groups
        }
        pages = [
            widgets.VBox([control.row for control in part], layout=widgets.Layout(padding="6px 2px"))
            for part in self._controls.values()
        ]
        self._tabs.children = pages
        for index, group in enumerate(groups):
            self._tabs.set_title(index, TITLES.get(group, fields.GROUPS[group].split(" (")[0]))
        self._tabs.selected_index = min(selected, len(groups) - 1)

    def _button_rows(self) -> Any:
        row = widgets.Layout(flex_flow="row wrap", align_items="center", margin="2px 0")
        run = [self._buttons[name] for name in ("launch", "stop", "test")]
        files = [self.path, *(self._buttons[name] for name in ("save", "load", "import"))]
        return widgets.VBox([widgets.HBox(run, layout=row), widgets.HBox(files, layout=row)])


def _buttons(actions: dict[str, Callable[..., None]]) -> dict[str, Any]:
    looks = {
        "launch": ("Launch", "primary", "play", "Run the function with this configuration"),
        "stop": ("Stop", "danger", "stop", "Interrupt the run"),
        "test": ("Test", "", "check", "Run a short check on these processes"),
        "save": ("Save", "", "save", "Write the file; its comments stay"),
        "load": ("Load", "", "folder-open", "Read the file"),
        "import": ("Import from Accelerate", "", "download", ""),
    }
    made = {}
    for name, (text, style, icon, tip) in looks.items():
        width = "auto" if len(text) > 10 else "100px"
        made[name] = widgets.Button(
            description=text, button_style=style, icon=icon, tooltip=tip, layout=widgets.Layout(width=width)
        )
        made[name].on_click(lambda _, action=actions[name]: action())
    deliver_early(made["stop"])
    return made
