"""What a cell shows of its ranks, in a real Jupyter kernel, as a front end would save it."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.notebooks.kernels import Kernel, kernel

pytestmark = pytest.mark.timeout(120)

SETUP = "from notebook_accel import notebook_launcher\nnotebook_launcher(int, num_processes=2)"


class Saved:
    """The outputs of a cell as a notebook keeps them: text joined, displays brought up to date."""

    def __init__(self):
        self.outputs, self.updates, self.error = [], 0, None
        self.times = []

    def note(self, kind, content):
        self.times.append(time.monotonic())
        last = self.outputs[-1] if self.outputs else {}
        if kind == "stream" and last.get("name") == content["name"]:
            last["text"] += content["text"]
        elif kind == "stream" or kind in ("display_data", "execute_result"):
            self.outputs.append(dict(content))
        elif kind == "update_display_data":
            self.updates += 1
            name = content["transient"]["display_id"]
            for output in self.outputs:
                if output.get("transient", {}).get("display_id") == name:
                    output["data"] = content["data"]
        elif kind == "error":
            self.error = content["ename"]

    def streams(self, name):
        return "".join(output["text"] for output in self.outputs if output.get("name") == name)

    @property
    def stdout(self):
        return self.streams("stdout")

    @property
    def stderr(self):
        return self.streams("stderr")

    @property
    def data(self):
        return [output["data"] for output in self.outputs if "data" in output]

    @property
    def text(self):
        """Everything as plain text, in the order it stands in."""
        return "\n".join(output.get("text") or output["data"].get("text/plain", "") for output in self.outputs)

    @property
    def log(self):
        return Path(re.search(r"^Full log: (.*)$", self.stdout, re.MULTILINE)[1])


def saved(running: Kernel, code: str, timeout: float = 60) -> Saved:
    return finish(running, running.start(code), timeout)


def finish(running: Kernel, message: str, timeout: float = 60) -> Saved:
    result = Saved()
    for kind, content in running._messages(message, timeout):
        result.note(kind, content)
    return result


@contextmanager
def kernel_with_cache(folder, **environment):
    with kernel(XDG_CACHE_HOME=str(folder), **environment) as running:
        running.run(SETUP)
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with kernel_with_cache(tmp_path_factory.mktemp("cache")) as running:
        yield running


def test_the_first_print_shows_while_the_rank_works(shared):
    shared.run("def work():\n    import time\n    print('at once')\n    time.sleep(2)\n    print('late')")
    began = time.monotonic()
    cell = shared.start("notebook_launcher(work, num_processes=2)")
    shared.until(cell, "at once")
    assert time.monotonic() - began < 1.5
    assert "late" in finish(shared, cell).stdout


def test_lines_are_whole_and_tagged(shared):
    shared.run(
        """
        def work():
            import os, sys
            for n in range(50):
                print("a,", end=""); print("b,", end="", flush=True); print("c", n)
            os.write(1, b"native\\n"); print("to stderr", file=sys.stderr)
        """
    )
    ran = saved(shared, "notebook_launcher(work, num_processes=2)")
    lines = ran.stdout.splitlines()[1:-1]
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        assert mine == [*(f"[rank {rank}] a,b,c {n}" for n in range(50)), f"[rank {rank}] native"]
    assert sorted(ran.stderr.splitlines()) == ["[rank 0] to stderr", "[rank 1] to stderr"]


def test_prints_before_an_error_show(shared):
    shared.run("def work():\n    print('before', end='')\n    1 / 0")
    ran = saved(shared, "notebook_launcher(work, num_processes=2)")
    assert ran.error == "ZeroDivisionError"
    assert {"[rank 0] before", "[rank 1] before"} <= set(ran.text.splitlines())


BARS = """
def work():
    import time
    from {module} import tqdm
    for _ in tqdm(range(20), desc="steps"):
        time.sleep(0.05)
    print("done")
"""


@pytest.mark.parametrize("module", ["tqdm", "tqdm.auto", "tqdm.notebook"])
def test_a_bar_is_one_live_line_a_rank_and_its_end_is_saved(shared, module):
    pytest.importorskip("tqdm")
    shared.run(BARS.format(module=module))
    ran = saved(shared, "notebook_launcher(work, num_processes=2)")
    assert 3 <= ran.updates < 30
    assert ran.stderr == ""
    for rank in (0, 1):
        (bar,) = [line for line in ran.text.splitlines() if line.startswith(f"[rank {rank}] steps")]
        assert "100%" in bar
        assert "20/20" in bar
    assert ran.text.index("20/20") < ran.text.index("done")
    assert not any("widget" in kind for data in ran.data for kind in data)


def test_a_bar_made_in_the_notebook_s_namespace_travels(shared):
    pytest.importorskip("tqdm")
    shared.run("from tqdm.notebook import tqdm as bar\ndef work():\n    return len(list(bar(range(3))))")
    ran = saved(shared, "list(notebook_launcher(work, num_processes=2))")
    assert ran.data[-1]["text/plain"] == "[3, 3]"
    assert "3/3" in ran.text


def test_nested_bars(shared):
    pytest.importorskip("tqdm")
    shared.run(
        """
        def work():
            import time
            from tqdm.auto import tqdm
            for _ in tqdm(range(3), desc="epochs"):
                for _ in tqdm(range(10), desc="steps", leave=False):
                    time.sleep(0.03)
        """
    )
    ran = saved(shared, "notebook_launcher(work, num_processes=2, output='main')")
    lines = [line for line in ran.text.splitlines() if line.startswith("[rank 0]")]
    assert len(lines) == 1
    assert "epochs: 100%" in lines[0]


def test_figures_and_html_are_tagged_and_text_is_escaped(shared):
    pytest.importorskip("matplotlib")
    shared.run(
        """
        def work():
            import os, time
            from IPython.display import HTML, Markdown, display as show
            rank = os.environ["RANK"]
            show(HTML(f"<b>bold {rank}</b>"), Markdown("*m*"))
            handle = display("first", display_id="same name in all ranks")
            import matplotlib.pyplot as plt
            plt.plot([1, 2]); plt.show()
            handle.update(f"second {rank}")
            print("<i>not markup</i>", end="\\r", flush=True); time.sleep(0.6)
        """
    )
    ran = saved(shared, "notebook_launcher(work, num_processes=2)")
    html = [data.get("text/html", "") for data in ran.data]
    for rank in (0, 1):
        place = html.index(f"<b>bold {rank}</b>")
        assert f"[rank {rank}]" in html[place - 1]
        assert [data["text/plain"] for data in ran.data].count(f"'second {rank}'") == 1
    assert sum("image/png" in data for data in ran.data) == 2
    assert sum("text/markdown" in data for data in ran.data) == 2
    assert any("&lt;i&gt;not markup" in text for text in html)
    assert not any("<i>" in text for text in html)


def test_a_figure_that_is_cleared_and_drawn_again_moves_in_place(shared):
    pytest.importorskip("matplotlib")
    shared.run(
        """
        def work():
            import matplotlib.pyplot as plt
            from IPython.display import clear_output
            for n in range(4):
                clear_output(wait=True); plt.plot(range(n + 2)); plt.show()
            plt.title("not shown by hand"); plt.plot([1])
        """
    )
    ran = saved(shared, "notebook_launcher(work, num_processes=2, output='main')")
    assert sum("image/png" in data for data in ran.data) == 2


@pytest.mark.parametrize("size", [3_000_000])
def test_a_large_display_arrives_whole(shared, size):
    shared.run(f"def work():\n    display({{'text/html': 'x' * {size}}}, raw=True)")
    ran = saved(shared, "notebook_launcher(work, num_processes=2)")
    assert [len(html) for data in ran.data if len(html := data.get("text/html", "")) > 1000] == [size, size]


@pytest.mark.parametrize(
    ("output", "shown"), [("quiet", []), ("main", [0]), ("grouped", [0, 0, 0, 1, 1, 1]), ("all", [0, 1])]
)
def test_whose_output_is_shown(shared, output, shown):
    shared.run(
        "def work():\n    import time\n    for n in range(3):\n        print('line', n)\n        time.sleep(0.1)"
    )
    ran = saved(shared, f"notebook_launcher(work, num_processes=2, output={output!r})")
    ranks = [int(rank) for rank in re.findall(r"^\[rank (\d)\] line", ran.stdout, re.MULTILINE)]
    assert ranks == shown if output == "grouped" else set(ranks) == set(shown)
    assert sorted(ran.log.read_text().splitlines()) == [f"[rank {r}] line {n}" for r in (0, 1) for n in range(3)]


def test_a_flood_is_bounded_in_the_cell_and_whole_in_the_log(shared):
    shared.run("def flood():\n    for n in range(100_000):\n        print('line', n, 'of many')")
    ran = saved(shared, "notebook_launcher(flood, num_processes=2)")
    assert len(ran.text) < 1 << 19
    assert len(ran.text.splitlines()) < 2300
    assert len(ran.times) < 100
    (more,) = re.findall(r"… ([\d,]+) more lines, all of them in (\S+)", ran.text)
    assert Path(more[1]) == ran.log
    assert int(more[0].replace(",", "")) == 200_000 - 2000 - 200
    lines = ran.log.read_text().splitlines()
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        assert mine == [f"[rank {rank}] line {n} of many" for n in range(100_000)]


def test_output_lands_in_the_cell_that_caused_it(shared):
    shared.run("def late():\n    print('one', flush=True)\n    import time\n    time.sleep(0.3)\n    print('two')")
    first = shared.start("notebook_launcher(late, num_processes=2)")
    second = shared.start("print('the next cell')")
    ran = finish(shared, first)
    assert ran.stdout.count("two") == 2
    assert finish(shared, second).stdout == "the next cell\n"


def test_a_spawned_rank_displays_too(shared):
    shared.run("def work():\n    from IPython.display import HTML\n    display(HTML('<b>spawned</b>'))")
    ran = saved(shared, "notebook_launcher(work, num_processes=2, start_method='spawn')", timeout=100)
    assert [data.get("text/html") for data in ran.data].count("<b>spawned</b>") == 2


def test_a_kernel_under_pytest_shows_the_same(tmp_path):
    with kernel_with_cache(tmp_path, PYTEST_CURRENT_TEST="kept") as running:
        running.run("import os\nos.environ['PYTEST_CURRENT_TEST'] = 'kept'")
        running.run("def work():\n    import os\n    os.write(1, b'native\\n'); print('python')")
        ran = saved(running, "notebook_launcher(work, num_processes=2)")
        assert ran.stdout.count("native") == ran.stdout.count("python") == 2


def test_log_files_are_private_and_the_last_ten_stay(tmp_path):
    with kernel_with_cache(tmp_path) as running:
        running.run("def work(): print('hello')")
        running.run("for _ in range(12): notebook_launcher(work, num_processes=2, output='quiet')", timeout=100)
    folder = tmp_path / "notebook_accel" / "logs"
    files = sorted(folder.iterdir())
    assert len(files) == 10
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 10
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700] * 2


IN_A_THREAD = """
import threading, time
from notebook_accel.display.background import BackgroundView
from notebook_accel.pool.events import Displayed, Output, Partial

view = BackgroundView(state="running")

def drive():
    for n in range(300):
        view.show(Output(n % 2, "stdout", f"<line> {n}\\n"))
        view.show(Partial(0, "stderr", f"{n} of 300"))
        view.tick()
        time.sleep(0.005)
    view.show(Displayed(1, {"text/plain": "a figure"}, {}, {"display_id": "f"}))
    view.state("finished")
    view.finish()

thread = threading.Thread(target=drive)
thread.start()
"""


def test_what_a_thread_shows_stays_in_the_cell_it_was_started_in(shared):
    first = shared.start(IN_A_THREAD)
    finish(shared, first)
    second = shared.start("print('other'); thread.join(); time.sleep(0.2)")
    block, figure, ended = Saved(), False, False
    while not ended:
        message = shared.client.get_iopub_msg(timeout=20)
        kind, content, parent = message["msg_type"], message["content"], message["parent_header"]["msg_id"]
        if kind == "update_display_data":
            block.outputs, block.updates = [content], block.updates + 1
        elif kind == "display_data":
            figure = figure or content["data"]["text/plain"] == "a figure"
            assert parent == first
        elif kind == "stream":
            assert (parent, content["text"]) == (second, "other\n")
        ended = parent == second and kind == "status" and content["execution_state"] == "idle"
    assert figure
    assert block.updates < 20
    (data,) = block.data
    lines = data["text/plain"].splitlines()
    assert lines[0] == "finished"
    assert lines[1].startswith("… 101 more lines, all of them in ")
    assert lines[-3:-1] == ["[rank 1] <line> 299", lines[-2]]
    assert lines[-2].startswith("Full log: ")
    assert lines[-1] == "[rank 0] 299 of 300"
    assert "&lt;line&gt; 299" in data["text/html"]
    assert "<line>" not in data["text/html"]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs a user id")
def test_without_a_cache_folder_the_log_is_in_the_temporary_one(tmp_path):
    (tmp_path / "notebook_accel").write_text("in the way")
    (tmp_path / "tmp").mkdir()
    with kernel_with_cache(tmp_path, TMPDIR=str(tmp_path / "tmp")) as running:
        running.run("def work(): print('hello')")
        ran = saved(running, "notebook_launcher(work, num_processes=2)")
        assert ran.log.parent.name == f"notebook-accel-logs-{os.getuid()}"
        assert ran.log.read_text().count("hello") == 2
