"""%%ranks and %accel in a real Jupyter kernel: what people type, see, press and save."""

from __future__ import annotations

import json
import re
import time

import nbformat
import pytest

from tests.notebooks.kernels import kernel
from tests.notebooks.test_launcher import plain
from tests.notebooks.test_output import finish, saved

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One kernel with a session of two ranks, for all tests that leave it as it was."""
    folder = str(tmp_path_factory.mktemp("own"))
    with kernel(XDG_CACHE_HOME=folder, TMPDIR=folder) as running:
        yield opened(running)


def opened(running):
    for refused in ("%%ranks\n1", "%accel status"):
        ran = running.run("%load_ext notebook_accel\n" + refused if refused[1] == "a" else refused, ok=False)
        assert "not found" in ran.stderr or "There is no session: start one by" in ran.stderr
    ran = running.run("%accel start -n 2 --cpu", timeout=120)
    assert re.search(r"^2 ranks, started in [\d.]+ s\. Cells headed %%ranks run on them\.$", ran.stdout, re.MULTILINE)
    return running


def refusal(running, code):
    """What a cell says that fails without a traceback."""
    reply = running.client.execute(code, reply=True, timeout=60)["content"]
    assert (reply["status"], reply["ename"]) == ("error", "UsageError")  # so nbclient and nbval see an error
    return reply["evalue"]


def test_variables_live_and_equal_output_is_shown_once(shared):
    ran = saved(shared, "%%ranks\nimport time\nmine = rank * 10\nprint('hello')\nmine + world_size")
    assert ran.text == "[ranks 0, 1] hello\n\n[rank 0] 2\n[rank 1] 12"
    assert saved(shared, "%%ranks !0\nmine").text == "[rank 1] 10"
    assert saved(shared, "%%ranks 0\nmine = 5; device.type").text == "[rank 0] 'cpu'"
    assert saved(shared, "%%ranks\nmine, _").text == "[rank 0] (5, 'cpu')\n[rank 1] (10, 10)"
    assert shared.run("mine", ok=False).error == "NameError"  # the kernel's variables are its own


def test_a_result_can_be_kept_and_nothing_else_is_written_here(shared):
    before = shared.run("names = set(globals()); sorted(names)").value
    shared.run("%%ranks -o values\nmine_too = rank + 0.5\nmine_too")
    assert shared.run("list(values), sorted(set(globals()) - names - {'values', 'names'})").value.startswith(
        "([0.5, 1.5], ["
    )
    assert "mine_too" not in shared.run("sorted(globals())").value
    assert before


def test_push_pull_and_here(shared):
    shared.run("given = {'a': 1}\n%accel push given --ranks 1")
    assert "NameError" in saved(shared, "%%ranks 0\ngiven").error
    assert "given" in refusal(shared, "%accel push given_not")
    shared.run("%accel pull given --rank 1")
    ran = shared.run("%accel push given\n%accel pull given")
    assert "given = RankResults of 2 ranks" in ran.stdout
    ran = saved(shared, "%%ranks --here\nboth = 6 * 7\nboth")
    assert ran.data[0]["text/plain"] == "[ranks 0, 1] 42"
    assert shared.run("both").value == "42"
    ran = shared.run("%%ranks --here\n\nif 'rank' not in globals():\n    1 / 0", ok=False)
    assert ran.error == "ZeroDivisionError"
    assert "line 4" in plain(ran.traceback)
    assert "notebook_accel" not in plain(ran.traceback)


def test_an_error_is_the_ranks_own_and_the_session_goes_on(shared):
    ran = shared.run("%%ranks\nprint('before')\n\ndef deep(n):\n    return 1 / n\n\ndeep(rank)", ok=False)
    text = plain(ran.traceback)
    assert ran.error == "ZeroDivisionError"
    assert "[ranks 0, 1] before" in ran.stdout
    assert re.search(r"Cell In\[\d+\], line 7\n", text)
    assert re.search(r"Cell In\[\d+\], line 5, in deep", text)
    assert text.rstrip().endswith("[rank 0 of 2]")
    assert "notebook_accel" not in text
    assert "run_cell_magic" not in text
    ran = shared.run("%%ranks\nimport warnings; warnings.warn('careful')")
    assert re.search(r"<cell In\[\d+\], [\d-]+>:2: UserWarning: careful", ran.stderr)
    ran = shared.run("%%ranks\n\nx = = 3", ok=False)
    assert ran.error == "SyntaxError"
    assert re.match(r"\s*Cell In\[\d+\], line 3\n", plain(ran.traceback))
    ran = shared.run("%%ranks\nraise RuntimeError('CUDA out of memory. Tried to allocate')", ok=False)
    assert plain(ran.traceback).rstrip().endswith("CUDA out of memory. Tried to allocate  [ranks 0, 1 of 2]")
    assert saved(shared, "%%ranks\nprint('still here')").text == "[ranks 0, 1] still here\n"


def test_what_cannot_be_asked_for_is_said_in_a_line(shared):
    assert "there is no rank 7 here, only 0, 1" in refusal(shared, "%%ranks 7\n1")
    assert "Unrecognized arguments: --wait" in refusal(shared, "%%ranks --wait\n1")
    assert "A session of 2 ranks is open" in refusal(shared, "%accel start -n 4")
    assert "invalid choice: 'frob'" in refusal(shared, "%accel frob")


def test_output_comes_while_the_ranks_work_and_in_its_own_cell(shared):
    cell = shared.start("%%ranks\nprint('at once'); time.sleep(1.5); print('late')")
    began = time.monotonic()
    shared.until(cell, "[ranks 0, 1] at once")
    assert time.monotonic() - began < 1
    assert finish(shared, cell).stdout == "[ranks 0, 1] late\n"
    assert saved(shared, "%%ranks\nfor _ in range(3): print('same')").stdout == "[ranks 0, 1] same\n" * 3
    assert saved(shared, "%%ranks 0\nprint('mine')").stdout == "[rank 0] mine\n"


def test_choices_of_output(shared):
    code = "print(f'{rank} a'); print('b')"
    grouped = "[rank 0] 0 a\n[rank 0] b\n[rank 1] 1 a\n[rank 1] b\n"
    for _ in range(2):  # the same each time, for notebooks that are tests
        assert saved(shared, f"%%ranks --output grouped\n{code}").text == grouped
    assert saved(shared, f"%%ranks --output main\n{code}").text == "[rank 0] 0 a\n[rank 0] b\n"
    assert saved(shared, f"%%ranks --output quiet\n{code}; 3").text == ""
    assert shared.run("%accel logs 1 -l 2").stdout == "1 a\nb\n"


def test_a_flood_is_bounded_and_can_be_stopped(shared):
    cell = shared.start("%%ranks\nfor n in range(10**9): print('step', n)")
    time.sleep(1)
    shared.interrupt()
    ran = finish(shared, cell)
    assert ran.error == "KeyboardInterrupt"
    assert len(ran.text) < 1 << 20
    assert "more lines, all of them in" in ran.text


def test_bars_are_one_line_a_rank(shared):
    ran = saved(shared, "%%ranks\nfrom tqdm.auto import tqdm\nfor _ in tqdm(range(100)): time.sleep(0.005)")
    assert len([line for line in ran.text.splitlines() if "100/100" in line]) == 2
    assert len(ran.text.splitlines()) == 2


def test_displays_and_figures_have_their_ranks(shared):
    pytest.importorskip("matplotlib")
    shared.run("%%ranks\nfrom IPython.display import HTML")
    code = "display(HTML('<b>all</b>'))\ndisplay(HTML(f'<i>{rank}</i>'))\nHTML('<u>x</u>')"
    ran = saved(shared, f"%%ranks\n{code}")
    tags = [data["text/plain"] for data in ran.data if data["text/plain"].startswith("[")]
    pages = [data["text/html"] for data in ran.data if not data["text/plain"].startswith("[")]
    assert tags == ["[ranks 0, 1]", "[rank 0]", "[rank 1]", "[ranks 0, 1]"]
    assert pages == ["<b>all</b>", "<i>0</i>", "<i>1</i>", "<u>x</u>"]
    ran = saved(shared, "%%ranks 1\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    assert ran.data[0]["text/plain"] == "[rank 1]"
    assert "image/png" in ran.data[1]


def test_stop_runs_finally_and_keeps_variables(shared, tmp_path):
    shared.run("%%ranks\nimport torch, torch.distributed as dist\nkept = rank + 1")
    code = f"try:\n    print('in'); time.sleep(600)\nfinally:\n    open(f'{tmp_path}/{{rank}}', 'w').close()"
    cell = shared.start(f"%%ranks\n{code}")
    shared.until(cell, "in")
    began = time.monotonic()
    shared.interrupt()
    ran = shared.finish(cell)
    assert ran.error == "KeyboardInterrupt"
    assert plain(ran.traceback).strip() == "KeyboardInterrupt: stopped on ranks 0, 1; the session goes on"
    assert time.monotonic() - began < 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    ran = saved(shared, "%%ranks\ntotal = torch.tensor([kept])\ndist.all_reduce(total)\ntotal.item()")
    assert ran.text.endswith("[ranks 0, 1] 3")


def test_cells_that_go_on_while_others_run(shared):
    shared.run("%%ranks 1 --nowait -o handle\nfor n in range(50): print('line', n); time.sleep(0.02)")
    assert "Rank 1 still runs another cell; this one follows." in shared.run("%%ranks 1\n1").stdout
    assert "finished" in shared.run("handle.result(); handle").value
    shared.run("%%ranks --nowait\ntime.sleep(600)")
    assert shared.run("%accel interrupt").stdout.endswith("Interrupted: no rank runs a cell now.\n")
    cell = shared.start("%%ranks --nowait\nfor n in range(50): print('line', n); time.sleep(0.02)\n1 / (rank - 1)")
    first = finish(shared, cell)
    other = shared.start("import time\nfor n in range(3): print('other', n); time.sleep(0.6)")
    seen = []
    deadline = time.monotonic() + 30
    while not any("failed after" in text and "line 0\n" in text for text in seen) and time.monotonic() < deadline:
        message = shared.client.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") == other:
            assert "line" not in json.dumps(message["content"])
        elif message["msg_type"] == "update_display_data":
            assert message["parent_header"].get("msg_id") == cell
            seen.append(message["content"]["data"]["text/plain"])
    finish(shared, other)
    assert "runs on ranks 0, 1" in first.text
    lines = re.findall(r"^\[ranks 0, 1\] line (\d+)$", seen[-1], re.MULTILINE)
    assert list(map(int, lines)) == list(range(50))
    assert re.search(r"^  Cell In\[\d+\], line 3, in <module>$", seen[-1], re.MULTILINE)
    assert "ZeroDivisionError: division by zero" in seen[-1]
    assert re.search(r"^Cell In\[\d+\] failed after", seen[-1])


def test_two_cells_that_go_on_have_a_block_each(shared):
    cells = [
        shared.start(f"%%ranks {rank} --nowait\nfor n in range(20): print('of', rank); time.sleep(0.01)")
        for rank in (0, 1)
    ]
    last = {}
    while len([text for text in last.values() if "finished" in text]) < 2:
        message = shared.client.get_iopub_msg(timeout=30)
        if message["msg_type"] == "update_display_data":
            last[message["parent_header"]["msg_id"]] = message["content"]["data"]["text/plain"]
    for rank, cell in enumerate(cells):
        assert last[cell].splitlines()[1:] == [f"[rank {rank}] of {rank}"] * 20


def test_output_that_nobody_read_can_be_asked_for_again(shared):
    cell = shared.start("%%ranks\nfor n in range(5): print('unread', n)")
    while shared.client.get_iopub_msg(timeout=30)["parent_header"].get("msg_id") != cell:
        """Read up to the cell's first message, and no further: the page was closed."""
    shared.client.get_shell_msg(timeout=30)
    assert [f"unread {n}" for n in range(5)] == shared.run("%accel logs 0 -l 5").stdout.splitlines()


def test_completion_and_documentation_are_those_of_the_ranks(shared):
    def complete(code):
        return shared.client.complete(code, len(code), reply=True, timeout=30)["content"]["matches"]

    def inspect(code):
        return shared.client.inspect(code, len(code), reply=True, timeout=30)["content"]

    shared.run("%config Completer.use_jedi = False\nkernel_only = 1")
    shared.run(
        "%%ranks\nworker_only = {'alpha': 1}\nclass Net:\n    '''Docs of the net.'''\n    layer_one = 3\nnet = Net()"
    )
    assert complete("%%ranks\nworker_o") == ["worker_only"]
    assert complete("%%ranks\nkernel_o") == []
    assert complete("kernel_o") == ["kernel_only"]
    assert complete("worker_o") == []
    assert complete("%%ranks 1\nx = 1\nnet.lay")[0].endswith(".layer_one")
    assert "accelerator" in complete("%%ranks\naccelera")
    assert complete("%accel inter") == ["interrupt"]
    assert complete("%%ranks --tim") == ["--timeout"]
    assert "Docs of the net" in inspect("%%ranks\nnet")["data"]["text/plain"]
    assert not inspect("%%ranks\nkernel_only")["found"]
    assert inspect("kernel_only")["found"]
    ran = saved(shared, "%%ranks\nnet?")
    assert "Docs of the net." in plain(ran.stdout)
    shared.run("%%ranks --nowait -o handle\ntime.sleep(1)")
    assert complete("%%ranks\nworker_o") == []  # busy: nobody waits for it
    shared.run("handle.result()")


def test_every_cell_mode_says_that_it_is_on(shared):
    shared.run("%accel every-cell on")
    try:
        ran = saved(shared, "\n\nhere_or_there = rank\nhere_or_there")
        assert ran.stdout == "On ranks 0, 1, as every cell; %accel every-cell off ends it.\n"
        assert ran.data[-1]["text/plain"] == "[rank 0] 0\n[rank 1] 1"
        failed = shared.run("\n1 / (rank - 1)", ok=False)
        assert re.search(r"Cell In\[\d+\], line 2", plain(failed.traceback))
        shared.client.execute("asked_by_the_page = 1", silent=True, reply=True, timeout=30)
        assert saved(shared, "%%ranks 0\nrank").text == "[rank 0] 0"
    finally:
        shared.run("%accel every-cell off")
    assert shared.run("asked_by_the_page, 'here_or_there' in globals()").value == "(1, False)"


def test_status_of_busy_ranks_and_what_a_saved_notebook_keeps(shared):
    pytest.importorskip("ipywidgets")
    shared.run("%%ranks --nowait -o handle\nprint('begun'); time.sleep(2)")
    cell = shared.start("%accel status")
    text = finish(shared, cell)
    (table, widgets) = text.data
    assert "<table" in table["text/html"]
    assert re.search(r"0 +busy .*time.sleep\(2\)", table["text/plain"])
    assert widgets["text/plain"] == ""
    view = "application/vnd.jupyter.widget-view+json"
    assert view in widgets
    assert view not in table  # so that a page without widgets shows the table
    exported = pytest.importorskip("nbconvert").HTMLExporter()
    outputs = [nbformat.v4.new_output("display_data", data=data) for data in text.data]
    page, _ = exported.from_notebook_node(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%accel status", outputs=outputs)])
    )
    assert "all_gather" in page  # readable without a kernel, and without JavaScript
    state = shared.run(
        "import ipywidgets.embed\n"
        "found = ipywidgets.embed.embed_data(views=None)['manager_state']['state']\n"
        "sorted({(item['model_module'], item['model_name']) for item in found.values()})"
    ).value
    assert set(re.findall(r"'(@[^']+)'", state)) == {"@jupyter-widgets/base", "@jupyter-widgets/controls"}
    assert "Output" not in state
    shared.run("handle.result()")
    assert "0     idle" in shared.run("%accel status --text").stdout
    assert "None" not in shared.run("%accel where").stdout


def test_a_rank_that_dies_comes_back_with_its_variables(shared):
    shared.run("%%ranks\nimport os, signal, torch, torch.distributed as dist\nmine = rank")
    ran = shared.run("%%ranks\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)", ok=False)
    assert ran.error == "RankDied"
    assert "Rank 1 of 2 was ended by SIGKILL" in ran.traceback
    ran = shared.run("%%ranks\nmine", ok=False)
    assert ran.error == "RankDied"
    assert saved(shared, "%%ranks 0\nmine").text.endswith("[rank 0] 0")
    assert "Rank 1 is new" in shared.run("%accel restart 1 --replay").stdout
    ran = saved(shared, "%%ranks\ntotal = torch.tensor([mine])\ndist.all_reduce(total)\ntotal.item(), mine")
    assert ran.text == "[rank 0] (1, 0)\n[rank 1] (1, 1)"


def test_check_names_what_differs(shared):
    shared.run("%%ranks\nimport torch\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(2, 1)")
    same = shared.run("%accel check model").stdout
    shared.run("%%ranks 1\nmodel.bias.data += 1")
    different = shared.run("%accel check model").stdout
    assert "bias" not in same
    assert "bias" in different


def test_export_says_how_to_launch(shared, tmp_path):
    shared.run("%accel restart")
    shared.run("%%ranks\nprint(rank)")
    ran = shared.run(f"%accel export {tmp_path}/train.py")
    assert f"notebook-accel launch --num_processes 2 --cpu {tmp_path}/train.py" in ran.stdout
    assert "print(rank)" in (tmp_path / "train.py").read_text()
    assert "exists already" in refusal(shared, f"%accel export {tmp_path}/train.py")
    shared.run(f"%accel export {tmp_path}/train.py --overwrite")


def test_restarts_and_the_end(shared):
    began = time.monotonic()
    for number in range(5):
        shared.run("%accel restart")
        assert saved(shared, f"%%ranks\n{number}").text == f"[ranks 0, 1] {number}"
    assert time.monotonic() - began < 30
    processes = "import psutil; len([c for c in psutil.Process().children(recursive=True)])"
    before = int(shared.run(processes).value)
    shared.run("%accel every-cell on")
    assert "ranks 0, 1 and their variables are gone" in shared.run("%accel stop").stdout
    assert "There is no session" in refusal(shared, "%%ranks\n1")
    assert shared.run("1 + 1").value == "2"  # every-cell mode has ended with it
    assert int(shared.run(processes).value) == before - 2
    shared.run("%unload_ext notebook_accel")
    assert "not found" in refusal(shared, "%%ranks\n1")


def test_a_session_outlives_its_kernel(tmp_path):
    with kernel(XDG_CACHE_HOME=str(tmp_path), TMPDIR=str(tmp_path)) as own:
        own.run("%load_ext notebook_accel\n%accel start -n 2 --cpu --keep_alive 2min", timeout=120)
        own.run("%%ranks\nkept = rank + 5\nimport time")
        own.run("%%ranks --nowait\nfor n in range(600): print('meanwhile', n); time.sleep(0.1)")
        own.client.stop_channels()
        own.manager.restart_kernel(now=True)
        own.__init__(own.manager)
        ran = saved(own, "%load_ext notebook_accel\n%accel attach")
        assert "Attached to ranks 0, 1, with their variables." in ran.text
        assert "running" in ran.text
        assert own.run("%accel interrupt").stdout.endswith("Interrupted: no rank runs a cell now.\n")
        assert saved(own, "%%ranks\nkept").text.endswith("[rank 0] 5\n[rank 1] 6")
        own.run("%accel stop")
