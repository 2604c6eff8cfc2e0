"""The text of an exported session."""

from __future__ import annotations

import pytest

from notebook_accel.errors import ConfigError
from notebook_accel.session.export import script
from notebook_accel.session.session import Record
from notebook_accel.session.source import Source


def exported(*cells):
    """The script of cells, which are texts, or texts with ranks, or with whether they ended well."""
    records = []
    for number, cell in enumerate(cells, 1):
        code, ranks, ok, merged = (*cell, True, ())[:4] if isinstance(cell, tuple) else (cell, (0, 1), True, ())
        records.append(Record(Source(code, "<cell>", 2, number), ranks, ok, merged=merged))
    return script(records, (0, 1), "notebook-accel launch --num_processes 2 train.py")


def test_only_what_is_used_is_in_the_prologue():
    text = exported("x = 1")
    assert "notebook-accel launch --num_processes 2 train.py" in text.splitlines()[2]
    assert "rank =" not in text
    assert "Accelerator" not in text
    text = exported("x = (rank, device)", "x")
    assert "rank = _state.process_index" in text
    assert "device = _state.device" in text
    assert "world_size =" not in text
    compile(text, "train.py", "exec")


def test_accelerator_is_made_where_the_session_made_it():
    text = exported("import torch", "model = accelerator.prepare(torch.nn.Linear(1, 1))")
    assert text.index("import torch\n") < text.index("accelerator = Accelerator()") < text.index("model =")
    own = exported("from notebook_accel import Accelerator", "accelerator = Accelerator()", "accelerator.print(1)")
    assert own.count("accelerator = Accelerator()") == 1


def test_cells_of_some_ranks_are_under_a_condition():
    text = exported(("x = 1\nx", (1,)), ("y = 2", (0, 1)))
    assert "if rank == 1:\n    x = 1\n    _show(x)\n" in text
    assert "\ny = 2\n" in text


def test_failed_cells_are_left_out_and_said_so():
    text = exported("x = 1", ("1 / 0", (0, 1), False), ("y = 1", (0, 1), None))
    assert "1 / 0" not in text
    assert "Cell In[2] is left out: it failed, or was stopped." in text
    assert "Cell In[3] is left out: it has not ended." in text


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (["%timeit f()", "x = 1"], r"Cell In\[1\]: %timeit"),
        (["y + 1"], r"Cell In\[1\]: it uses 'y', which no cell here makes"),
        (["x = 1", "_ + x"], r"Cell In\[2\]: it uses '_', a result that only a notebook keeps"),
        ([("x = 1", (0, 1), False), "def f():\n    return x"], "it uses 'x'"),
    ],
)
def test_what_cannot_be_said_is_refused_by_cell(cells, reason):
    with pytest.raises(ConfigError, match=reason):
        exported(*cells)


def test_names_made_in_any_way_are_known():
    exported(
        "import os.path as p, sys\nfrom math import *",
        "def f(a, *b, c=1, **d):\n    return [a for a in b]\nclass A: pass\n(lambda e: e)(1)",
        "try:\n    f(A)\nexcept OSError as g:\n    print(g)\nfor h, (i, *j) in []: pass\nwith open(p) as k: k, h, i, j",
    )
    exported("match [1]:\n    case [x, *rest]:\n        x, rest\n    case {'a': y, **more}:\n        y, more")


def test_an_empty_session_is_a_script_that_runs():
    compile(exported(), "train.py", "exec")


def swapped(code, *names):
    return code, (0, 1), True, names


def ran(text):
    space = {"__name__": "__main__"}
    start = text.index("# Cell In[1]")
    exec(compile(text[start:].replace("_state.destroy_process_group()", ""), "train.py", "exec"), space)
    return space


def test_a_definition_that_was_swapped_stands_where_the_first_one_did():
    text = exported(
        "import functools\nclass Net:\n    def old(self): return 1\nx = 1",
        "net = Net()\n@functools.cache\ndef f(a): return 1\nheld = f",
        swapped("class Net:\n    size = x\n    def new(self, other=x): return later", "Net"),
        "later = 5",
        swapped("# why\n@functools.cache\ndef f(a):\n    return 2\ny = held(0)", "f"),
        swapped("class Net:\n    def new(self): return later + 1", "Net"),
        "result = net.new(), isinstance(net, Net)",
    )
    space = ran(text)
    assert space["result"] == (6, True)
    assert space["y"] == 2
    assert text.count("class Net") == 1
    assert "# as Cell In[5] has it\n@functools.cache\ndef f(a):" in text
    assert text.count("def f(") == 1


def test_a_cell_whose_definitions_have_all_moved_says_so():
    text = exported("def f(): return 1", "g = [f]", swapped("def f(): return 2", "f"), "r = g[0]()")
    assert ran(text)["r"] == 2
    assert "# Cell In[3]: what it defines stands above, in the place of what was there before." in text


def test_definitions_of_other_ranks_or_in_blocks_stay():
    text = exported(
        "def f(): return 1", ("def f(): return 2", (1,), True, ("f",)), swapped("if 1:\n    def f(): 3", "f")
    )
    assert text.count("def f()") == 3
