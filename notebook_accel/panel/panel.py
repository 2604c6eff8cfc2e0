"""`config_panel`: choose, see what it means, save and launch, without leaving the notebook."""

from __future__ import annotations

import importlib.util
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from notebook_accel.config import load, paths
from notebook_accel.config.schema import OPTIONS, RunConfig, Source
from notebook_accel.errors import ConfigError, NotebookAccelError
from notebook_accel.panel import detect, render
from notebook_accel.panel.form import Form
from notebook_accel.panel.runs import PanelRun

_CODE = Source("call", "a cell, by the panel's attribute")
NO_WIDGETS = "ipywidgets is not installed, so the panel is text. `pip install 'ipywidgets>=7.7,<9'` gives the form."


def config_panel(
    function: Callable[..., Any] | None = None, args: tuple[Any, ...] = (), *, config: Any = None
) -> ConfigPanel:
    """A panel in which to choose what a training runs on; show it as the last line of a cell.

    Args:
        function: What *Launch* runs on every rank; without it, the panel only edits the configuration.
        args: Its arguments, a tuple.
        config: What to start from: the path of a YAML file, a dictionary of options, another panel; by default the
            saved configuration, if there is one.

    Returns:
        The panel. `panel.num_processes = 2` sets an option, `panel.config` is the configuration as it is now, and
        `notebook_launcher(train, config=panel)` launches with it.

    Raises:
        ConfigError: The file to start from cannot be read; the text has the line.

    Example:
        >>> panel = config_panel(train)
        >>> panel.num_processes = 2
        >>> panel
    """
    return ConfigPanel(function, args, load.from_any(config, with_environment=False))


class ConfigPanel:
    """What `config_panel` returns. Options are attributes."""

    def __init__(self, function: Callable[..., Any] | None, args: tuple[Any, ...], config: RunConfig | None) -> None:
        """Looks at the machine, and starts with `config`."""
        own = self.__dict__
        own["_around"] = detect.surroundings()
        machine, own["_trouble"] = detect.machine(load.resolve({}))
        own["_form"] = Form(machine, config)
        own["_function"], own["_args"] = function, args
        own["_view"] = own["_run"] = own["_latest"] = None
        own["_last"], own["_shown"], own["_header"] = "", False, uuid.uuid4().hex
        own["results"] = None

    results: Any
    """What the last launch returned, in order of rank; None before."""

    @property
    def config(self) -> RunConfig:
        """The configuration as it is now."""
        config: RunConfig = self._form.config
        return config

    def __getattr__(self, name: str) -> Any:
        if name in OPTIONS:
            return getattr(self.config, name)
        raise AttributeError(f"a configuration panel has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            self.__dict__[name] = value
            return
        self._form.put({name: value}, _CODE)  # says what `name` might be where there is none
        self._refresh()

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *OPTIONS})

    def explain(self) -> str:
        """A table: each value, where it came from, and what it means."""
        return load.explain(self.config, everything=False)

    def save(self, path: str | Path | None = None) -> Path:
        """Write the configuration to a file (by default the saved default), whose comments stay; returns where."""
        written: Path = self._form.save(path)
        return written

    def load(self, path: str | Path) -> None:
        """Take over the configuration of a file. Raises `ConfigError` with its line where it cannot be read."""
        self._form.load(path)
        self._refresh()

    def launch(self) -> None:
        """Do what the button *Launch* does: run the function in the background, with its output in the panel."""
        if self._function is None:
            raise ConfigError("The panel has no function to launch. Make it with config_panel(train).")
        self._start(self._function, self._args)

    def test(self) -> None:
        """Do what the button *Test* does: a short check of processes, data and training."""
        from notebook_accel.testing import sanity

        self._start(sanity.run, ())

    def stop(self) -> None:
        """Interrupt what runs; returns at once."""
        if self._run is not None:
            self._run.stop()
            self._say("note", "Stopping …")

    def wait(self, timeout: float | None = None) -> Any:
        """What the latest run returned, when it has ended; raises what it raised."""
        run = self._latest
        if run is not None:
            run.join(timeout)
            if run.error is not None:
                raise run.error
        return self.results

    def __repr__(self) -> str:
        found = detect.sentence(self._form.machine, self._around)
        return render.header_text(found, self._form.launched, self._form.machine, self._last)

    def _ipython_display_(self) -> None:
        """The top as plain HTML, which every page and saved notebook can show, and below it the form."""
        from IPython.display import display

        self.__dict__["_shown"] = True
        display(self._top(), raw=True, display_id=self._header)
        if importlib.util.find_spec("ipywidgets") is None:
            print(NO_WIDGETS)
            print(render.text_form(self.config, self._form.machine))
            return
        if self._view is None:
            self.__dict__["_view"] = self._make_view()
        display(self._view.mime_bundle(), raw=True)

    def _top(self) -> dict[str, str]:
        found = detect.sentence(self._form.machine, self._around)
        page = render.header_html(found, self._form.launched, self._form.machine, self._last)
        return {"text/plain": repr(self), "text/html": page}

    def _make_view(self) -> Any:
        from notebook_accel.panel.view import PanelView

        actions: dict[str, Callable[..., None]] = {"changed": self._changed, "stop": self.stop}
        actions |= {name: self._guarded(name) for name in ("save", "load", "import", "test", "launch")}
        theirs = paths.of_accelerate()
        offer = str(theirs) if theirs is not None and not paths.default().is_file() else ""
        view = PanelView(
            self._form, actions, str(self.config._file or paths.default()), offer, self._function is not None
        )
        self.__dict__["_view"] = view
        self._tell_state()
        return view

    def _changed(self, name: str, value: Any) -> None:
        """The person changed a control."""
        try:
            self._form.put({name: value})
        except ConfigError as error:
            self._view.show()  # back to what it was
            self._say("bad", str(error))
            return
        self._refresh()

    def _guarded(self, name: str) -> Callable[[], None]:
        """The action of a button; what it raises is shown, since nobody else would see it."""
        action = {
            "save": self._save_clicked,
            "load": lambda: self._load_clicked(self._view.path.value),
            "import": lambda: self._load_clicked(str(paths.of_accelerate())),
            "test": self.test,
            "launch": self.launch,
        }[name]

        def run() -> None:
            try:
                action()
            except NotebookAccelError as error:
                self._say("bad", str(error))
            except Exception as error:  # noqa: BLE001 - a callback's exception would be lost
                self._say("bad", f"{type(error).__name__}: {error}")

        return run

    def _save_clicked(self) -> None:
        self._say("good", f"Saved {self.save(self._view.path.value)}")

    def _load_clicked(self, path: str) -> None:
        self.load(path)
        problems = self._form.problems()
        self._say("bad" if problems else "good", "\n".join([f"Loaded {path}", *problems]))

    def _refresh(self) -> None:
        if self._view is not None:
            self._view.show()
            self._tell_state()
        self._update_top()

    def _tell_state(self) -> None:
        problems = [*([self._trouble] if self._trouble else []), *self._form.problems()]
        if problems:
            self._say("note", "\n".join(problems))
        elif self._run is None:
            self._say("plain", f"Ready: {render.summary(self._form.launched, self._form.machine)}.")

    def _start(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self._run is not None:
            raise ConfigError(f"{self._run.name} is still running. Stop it first.")
        run = PanelRun(function, args, self._form.launched, self._draw, self._ended)
        self.__dict__["_run"] = self.__dict__["_latest"] = run
        if self._view is not None:
            self._view.running(True)
        # Colab shows nothing of what a thread does after its cell has ended, so there the click itself runs it.
        if "google.colab" in sys.modules:
            self._say("plain", f"Running {run.name}. To stop it, press Interrupt (Runtime menu).")
            run.execute()
        else:
            how = "Stop ends it" if detect.clicks_reach_a_busy_kernel() else "Stop ends it when no cell is running"
            self._say("plain", f"Running {run.name}. {how}.")
            run.start()

    def _draw(self, lines: list[str], dropped: int) -> None:
        if self._view is not None:
            self._view.draw(lines, dropped)

    def _ended(self, run: PanelRun) -> None:
        self.__dict__["_run"] = None
        if run.error is None:
            self.__dict__["results"] = run.results
        tone, text = run.outcome()
        self.__dict__["_last"] = text.splitlines()[0]
        if self._view is not None:
            self._view.running(False)
        self._say(tone, text)
        self._update_top()

    def _say(self, tone: str, text: str) -> None:
        if self._view is not None:
            self._view.say(tone, text)

    def _update_top(self) -> None:
        if self._shown:
            from IPython.display import update_display

            update_display(self._top(), raw=True, display_id=self._header)
