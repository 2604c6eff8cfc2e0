"""notebook_launcher in a real Jupyter kernel."""

from __future__ import annotations

import os
import re
import signal
import time

import psutil
import pytest

from tests.notebooks.kernels import kernel

pytestmark = pytest.mark.timeout(120)

SETUP = """
from notebook_accel import Accelerator, notebook_launcher, set_seed
import torch
"""


@pytest.fixture(scope="module")
def shared():
    with kernel() as running:
        running.run(SETUP)
        yield running


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def workers_of(pid):
    """The host of a kernel and its workers."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        if "notebook_accel.pool.host" in " ".join(child.cmdline()):
            found.append(child)
    return found


def test_launch_from_a_kernel_that_did_threaded_work_holds_a_device_and_an_accelerator(shared):
    shared.run(
        """
        a = torch.randn(600, 600, requires_grad=True); (a @ a).sum().backward()
        kept, torch.cuda.is_initialized = torch.cuda.is_initialized, lambda: True
        mine = Accelerator()
        def train():
            accelerator = Accelerator()
            b = torch.randn(600, 600, requires_grad=True); (b @ b).sum().backward()
            return accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
        """
    )
    ran = shared.run("print(list(notebook_launcher(train, num_processes=2)))\ntorch.cuda.is_initialized = kept")
    assert ran.stdout.splitlines()[-1] == "[[0, 1], [0, 1]]"
    assert ran.stderr == ""
    assert len(ran.stdout.splitlines()) == 2  # the banner, and the result: no notice of a renewal or of spawning


def test_definitions_of_cells_reach_the_ranks(shared):
    shared.run(
        """
        import dataclasses, enum
        factor = 3
        @dataclasses.dataclass
        class Config:
            size: int = 2
        class Color(enum.Enum):
            RED = 1
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 2)
        def scaled(value):
            return value * factor
        def outer():
            inside = 5
            return lambda config: (scaled(config.size) + inside, Config(7), Color.RED)
        def save():
            import io, pickle
            buffer = io.BytesIO()
            torch.save(Net(), buffer)
            return len(buffer.getvalue()) > 500 and pickle.loads(pickle.dumps(Config(4))) == Config(4)
        """
    )
    shared.run("r = notebook_launcher(outer(), (Config(),), num_processes=2)[1]")
    ran = shared.run("r[0], type(r[1]) is Config, r[2] is Color.RED")
    assert ran.value == "(11, True, True)"
    assert shared.run("list(notebook_launcher(save, num_processes=2))").value == "[True, True]"
    assert shared.run("list(notebook_launcher(save, num_processes=2, start_method='spawn'))").value == "[True, True]"


def test_results_do_not_touch_the_classes_of_the_notebook(shared):
    shared.run(
        """
        class Counter:
            total = 0
            def where(self): return factor
        method = Counter.where
        def count():
            Counter.total = 99
            return Counter()
        """
    )
    ran = shared.run(
        "c = notebook_launcher(count, num_processes=2)[0]; (type(c) is Counter, Counter.total, Counter.where is method)"
    )
    assert ran.value == "(True, 0, True)"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_datasets_and_collate_functions_of_cells_in_loader_workers(shared, method):
    shared.run(
        """
        class Squares(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, index): return square(index)
        def square(value): return value * value
        def collate(items): return torch.tensor(items) + 1
        def load(method):
            loader = torch.utils.data.DataLoader(
                Squares(), batch_size=4, num_workers=2, collate_fn=collate, multiprocessing_context=method)
            return torch.cat(list(loader)).tolist()
        """
    )
    ran = shared.run(f"notebook_launcher(load, ({method!r},), num_processes=2)[1]")
    assert ran.value == "[1, 2, 5, 10, 17, 26, 37, 50]"


def test_a_failing_rank_is_a_failed_cell(shared):
    shared.run(
        """
        def deep(value):
            return 1 / (value - 1)

        def failing():
            accelerator = Accelerator()
            if accelerator.process_index == 1:
                deep(1)
            accelerator.wait_for_everyone()
        """
    )
    began = time.monotonic()
    ran = shared.run("notebook_launcher(failing, num_processes=2)", ok=False)
    assert time.monotonic() - began < 10
    text = plain(ran.traceback)
    assert ran.error == "ZeroDivisionError"
    assert "return 1 / (value - 1)" in text
    assert "deep(1)" in text
    assert re.search(r"Cell In\[\d+\], line 2, in deep|<ipython-input-\d+", text)
    assert text.rstrip().endswith("division by zero  [rank 1 of 2]")
    assert "closed by peer" not in text
    ran = shared.run(
        """
        try: notebook_launcher(failing, num_processes=2)
        except ZeroDivisionError as error: print("caught", error.rank)
        """
    )
    assert ran.stdout.splitlines()[-1] == "caught 1"
    assert shared.run("import psutil; len(psutil.Process().children(recursive=True))").value == "1"  # the idle host
    assert shared.run("list(notebook_launcher(lambda: 5, num_processes=2))").value == "[5, 5]"


def test_interrupt_ends_the_call(shared, tmp_path):
    shared.run(
        """
        def sleeping(path):
            import os, pathlib, time
            try:
                pathlib.Path(path + os.environ["RANK"] + ".asleep").touch()
                time.sleep(60)
            finally: pathlib.Path(path + os.environ["RANK"]).write_text("cleaned up")
        """
    )
    cell = shared.start(f"notebook_launcher(sleeping, ({str(tmp_path / 'rank')!r},), num_processes=2)")
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.05)
    began = time.monotonic()
    shared.interrupt()
    ran = shared.finish(cell)
    assert time.monotonic() - began < 5
    assert ran.error == "KeyboardInterrupt"
    assert {"rank0", "rank1"} <= {path.name for path in tmp_path.iterdir()}
    assert len(workers_of(shared.pid)) == 1
    assert shared.run("list(notebook_launcher(lambda: 5, num_processes=2))").value == "[5, 5]"


def test_seed_dtype_and_folder_of_the_notebook(shared, tmp_path):
    shared.run(
        f"""
        import os, random, numpy
        os.chdir({str(tmp_path)!r})
        set_seed(7); torch.set_default_dtype(torch.float64)
        def draw():
            numbers = random.random(), float(numpy.random.rand()), float(torch.rand(1))
            return numbers, os.getcwd(), torch.rand(1).dtype
        results = notebook_launcher(draw, num_processes=2)
        """
    )
    assert shared.run("results[0] == results[1] == draw()").value == "True"
    shared.run("torch.set_default_dtype(torch.float32)")


def test_what_the_notebook_logs_the_ranks_log(shared):
    shared.run(
        """
        import logging, sys
        logging.basicConfig(level=logging.INFO, format="%(levelname)s|%(message)s", force=True)
        own = logging.getLogger("my.own")
        own.setLevel(logging.DEBUG); own.propagate = False
        own.addHandler(logging.StreamHandler(sys.stdout))
        def work():
            logging.info("to the root"); logging.debug("not this"); own.debug("of mine")
            logging.basicConfig(level=logging.DEBUG)  # has been done
        """
    )
    ran = shared.run("_ = notebook_launcher(work, num_processes=2)")
    shared.run("logging.basicConfig(level=logging.WARNING, force=True)")
    assert sorted(ran.stderr.splitlines()) == ["[rank 0] INFO|to the root", "[rank 1] INFO|to the root"]
    assert sorted(line for line in ran.stdout.splitlines() if "mine" in line) == [
        "[rank 0] of mine",
        "[rank 1] of mine",
    ]


def test_an_edited_module_is_seen_by_the_next_launch(shared, tmp_path):
    (tmp_path / "helper_of_a_user.py").write_text("answer = 1\n")
    shared.run(
        f"""
        import sys; sys.path.insert(0, {str(tmp_path)!r})
        import helper_of_a_user
        def ask():
            import helper_of_a_user
            return helper_of_a_user.answer
        """
    )
    assert shared.run("list(notebook_launcher(ask, num_processes=2))").value == "[1, 1]"
    (tmp_path / "helper_of_a_user.py").write_text("answer = 2  # edited\n")
    assert shared.run("list(notebook_launcher(ask, num_processes=2))").value == "[2, 2]"
    shared.run("sys.path.pop(0)")


def test_a_variable_set_after_the_first_launch_renews_the_host(shared):
    shared.run("def home():\n    import os\n    return os.environ.get('HF_HOME')")
    shared.run("notebook_launcher(home, num_processes=2)")
    ran = shared.run(
        "import os; os.environ['HF_HOME'] = '/somewhere/else'\nprint(list(notebook_launcher(home, num_processes=2)))"
    )
    assert "renewed host: HF_HOME changed in the environment" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "['/somewhere/else', '/somewhere/else']"
    assert len(workers_of(shared.pid)) == 1


def test_own_init_process_group_and_master_port(shared):
    shared.run(
        """
        def own_group():
            import os, torch.distributed as dist
            dist.init_process_group("gloo")
            total = torch.tensor([float(dist.get_rank() + 1)])
            dist.all_reduce(total)
            store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
            store.set("rank" + os.environ["RANK"], os.environ["RANK"])
            return total.item(), store.get("rank0"), store.get("rank1"), Accelerator().num_processes
        """
    )
    assert shared.run("notebook_launcher(own_group, num_processes=2)[1]").value == "(3.0, b'0', b'1', 2)"


def test_own_addresses_of_a_group(shared):
    """As torch's tutorials set up a group: a port of their own, by the environment or as an address."""
    shared.run(
        """
        import socket
        def free_port():
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))
                return taken.getsockname()[1]
        def own_port(port, **address):
            import os, torch.distributed as dist
            if not address:
                os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
            dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=2, **address)
            total = torch.ones(1)
            dist.all_reduce(total)
            return total.item()
        def addressed(port):
            return own_port(port, init_method=f"tcp://127.0.0.1:{port}")
        """
    )
    for function in ("own_port", "addressed"):
        ran = shared.run(f"list(notebook_launcher({function}, (free_port(),), num_processes=2, timeout=20))")
        assert ran.value == "[2.0, 2.0]"


def test_a_single_machine_run_listens_on_loopback_alone(shared):
    shared.run(
        """
        def listening():
            import psutil
            accelerator = Accelerator()
            accelerator.wait_for_everyone()
            return [c.laddr.ip for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
        found = notebook_launcher(listening, num_processes=2)
        """
    )
    assert shared.run("sorted({ip for rank in found for ip in rank})").value == "['127.0.0.1']"


def test_the_real_accelerate_inside_sees_the_world_and_the_precision(shared):
    pytest.importorskip("accelerate")
    shared.run(
        """
        def real():
            import accelerate
            it = accelerate.Accelerator()
            return it.num_processes, it.process_index, it.mixed_precision, it.device.type
        """
    )
    ran = shared.run("list(notebook_launcher(real, num_processes=2, mixed_precision='bf16'))")
    assert ran.value == "[(2, 0, 'bf16', 'cpu'), (2, 1, 'bf16', 'cpu')]"


def test_precision_reaches_our_accelerator_with_one_process_too(shared):
    shared.run("def precision(): return Accelerator().mixed_precision")
    for count in (1, 2):
        ran = shared.run(f"list(notebook_launcher(precision, num_processes={count}, mixed_precision='bf16'))")
        assert ran.value == str(["bf16"] * count)
    assert shared.run("list(notebook_launcher(precision, num_processes=1))").value == "['no']"


def test_weights_come_back_on_the_cpu(shared):
    shared.run(
        """
        def weights():
            accelerator = Accelerator()
            model = accelerator.prepare(torch.nn.Linear(3, 2))
            return accelerator.unwrap_model(model).state_dict()
        results = notebook_launcher(weights, num_processes=2)
        model = torch.nn.Linear(3, 2)
        """
    )
    assert shared.run("str(model.load_state_dict(results[0]))").value == "'<All keys matched successfully>'"
    assert "weight': Tensor (2, 3) torch.float32" in shared.run("results").value


def test_a_launch_inside_a_rank_or_a_thread_is_refused(shared):
    shared.run("def nested():\n    notebook_launcher(lambda: 1, num_processes=2)")
    for count in (1, 2):
        ran = shared.run(f"notebook_launcher(nested, num_processes={count})", ok=False)
        assert ran.error == "LaunchError"
        assert "inside rank" in plain(ran.traceback)
    ran = shared.run(
        """
        import threading
        caught = []
        def other():
            try: notebook_launcher(lambda: 1, num_processes=2)
            except Exception as error: caught.append(str(error))
        thread = threading.Thread(target=other, name="mine"); thread.start(); thread.join()
        print(caught[0])
        """
    )
    assert "in the thread 'mine'" in ran.stdout


def test_a_kernel_killed_leaves_nothing():
    with kernel() as running:
        running.run(SETUP)
        running.run("def sleeping():\n    import time\n    print('asleep')\n    time.sleep(100)")
        cell = running.start("notebook_launcher(sleeping, num_processes=2)")
        running.until(cell, "asleep", timeout=60)
        processes = workers_of(running.pid)
        assert len(processes) == 3
        os.kill(running.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(processes, timeout=5)
        assert alive == []


def test_a_kernel_that_exits_leaves_nothing():
    with kernel() as running:
        running.run(SETUP + "\nnotebook_launcher(lambda: 1, num_processes=2)")
        processes = workers_of(running.pid)
        assert len(processes) == 1
        running.client.shutdown()
        _, alive = psutil.wait_procs(processes, timeout=5)
        assert alive == []
