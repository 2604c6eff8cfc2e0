"""What a rank displays, and the bars of `tqdm.notebook` in it: in interpreters of their own, as ranks are."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

START = """
import json, os, sys, threading
from notebook_accel.pool import shell
shown = []
def attach(): shell.attach(3, shown.append)
def tell(*extra):
    print("TOLD" + json.dumps([[e.rank, e.data, e.transient.get("display_id"), e.update] for e in shown] + list(extra)))
"""


def told(code, tmp_path, **environment):
    """What `tell()` told at the end of the code, run in a fresh interpreter whose home is empty."""
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.getcwd(), **environment}
    env.pop("IPYTHONDIR", None)
    done = subprocess.run([sys.executable, "-c", START + code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("TOLD")[2])


def test_displays_become_events(tmp_path):
    events = told(
        """
shell.prepare_host(); attach()
from IPython.display import HTML
display(HTML("<b>x</b>"))
handle = display("first", display_id="mine"); handle.update("second")
display({"image/png": b"png", "application/json": {"a": (1, {2})}}, raw=True)
tell()
""",
        tmp_path,
    )
    assert [event[0] for event in events] == [3] * 4
    assert events[0][1]["text/html"] == "<b>x</b>"
    assert [event[2:] for event in events[1:3]] == [["mine", False], ["mine", True]]
    assert events[3][1] == {"image/png": "cG5n", "application/json": {"a": [1, "{2}"]}}


def test_the_shell_writes_nothing_and_starts_no_thread(tmp_path):
    (tmp_path / ".ipython/profile_default/db").mkdir(parents=True)  # any kernel has made it
    threads, main = told(
        """
main = sys.modules["__main__"]
shell.prepare_host()
shown = []
tell(threading.active_count(), sys.modules["__main__"] is main)
""",
        tmp_path,
    )
    assert (threads, main) == (1, True)
    assert sorted(tmp_path.rglob("*")) == [
        tmp_path / ".ipython" / part for part in ("", "profile_default", "profile_default/db")
    ]


def test_without_a_host_ipython_is_imported_by_who_wants_it(tmp_path):
    early, event = told(
        """
attach()
early = "IPython" in sys.modules
display("x")
tell(); shown = shown[:1]
print("TOLD" + json.dumps([early, shown[0].data]))
""",
        tmp_path,
    )
    assert (early, event) == (False, {"text/plain": "'x'"})


def test_clear_output_makes_the_next_display_take_the_place_of_the_last(tmp_path):
    events = told(
        """
attach()
from IPython.display import clear_output
display("a"); clear_output(wait=True); display("b"); display("c")
tell()
""",
        tmp_path,
    )
    ids, updates = [event[2] for event in events], [event[3] for event in events]
    assert updates == [False, True, False]
    assert ids[0] == ids[1] != ids[2]


def test_a_forked_child_of_a_rank_prints_instead(tmp_path):
    events = told(
        """
shell.prepare_host(); attach()
if os.fork() == 0:
    display("x"); sys.stdout.flush(); os._exit(0)
os.wait()
tell()
""",
        tmp_path,
    )
    assert events == []


def test_figures_that_were_not_shown_are_shown_at_the_end(tmp_path):
    pytest.importorskip("matplotlib")
    (event,) = told(
        """
shell.prepare_host(); attach()
import matplotlib.pyplot as plt
plt.plot([1]); shell.end_call(); shell.end_call()
tell()
""",
        tmp_path,
        MPLBACKEND="module://matplotlib_inline.backend_inline",
    )
    assert "image/png" in event[1]


def test_notebook_bars_are_standard_bars(tmp_path):
    pytest.importorskip("tqdm")
    found = told(
        """
attach()
early = "tqdm" in sys.modules
import pickle, tqdm.autonotebook, tqdm.auto
from tqdm.notebook import tqdm as bar, trange
from tqdm.std import tqdm as standard
list(bar(range(3), display=False)); list(trange(2))
shown = []
same = pickle.loads(pickle.dumps(bar)) is bar
tell(early, same, *[issubclass(kind, standard) for kind in (bar, tqdm.autonotebook.tqdm, tqdm.auto.tqdm)],
     "ipywidgets" in sys.modules)
""",
        tmp_path,
    )
    assert found == [False, True, True, True, True, False]


def test_a_bar_module_that_is_there_already_is_changed(tmp_path):
    pytest.importorskip("tqdm")
    found = told(
        """
import tqdm.notebook
attach()
from tqdm.std import tqdm as standard
shown = []
tell(tqdm.notebook.tqdm.__bases__ == (standard,))
""",
        tmp_path,
    )
    assert found == [True]
