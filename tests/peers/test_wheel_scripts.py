"""The scripts that the real package ships to test itself run in our workers, against our package."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from notebook_accel import notebook_launcher


class Redirected(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`import accelerate.x` gives `notebook_accel.x`."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self) if fullname.split(".")[0] == "accelerate" else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module("notebook_accel" + spec.name.removeprefix("accelerate"))
        self._own = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._own


def stand_in_for_datasets() -> None:
    """test_metrics imports two large packages, and uses them on a GPU only: there the data would be downloaded."""
    quiet = types.SimpleNamespace(set_verbosity_warning=bool, set_verbosity_error=bool)
    datasets: Any = types.ModuleType("datasets")
    datasets.load_dataset, datasets.utils = None, types.SimpleNamespace(logging=quiet)
    datasets.__spec__ = importlib.machinery.ModuleSpec("datasets", None)
    for name in ("datasets", "evaluate"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = datasets


LEFT_OUT = {
    "test_distributed_data_loop": (
        # What kind of set-up this is follows from how it was started, and cannot be set.
        "    accelerator.state.distributed_type = DistributedType.FSDP\n"
        "    test_join_raises_warning_for_non_ddp_distributed(accelerator)\n"
        "    accelerator.state.distributed_type = original_state\n",
        # An Accelerator belongs to its process: ours says so instead.
        "    test_pickle_accelerator()\n",
    ),
    "test_ddp_comm_hook": (
        # torch's own DDP, for comparison, takes no device ids on a CPU.
        "        device_ids=[accelerator.local_process_index],\n"
        "        output_device=accelerator.local_process_index,\n",
    ),
}
"""Lines of the scripts that ask for what ours does otherwise on purpose."""


def source(path: str) -> str:
    text = Path(path).read_text()
    for lines in LEFT_OUT.get(Path(path).stem, ()):
        assert text.count(lines) == 1, "the script has changed"
        text = text.replace(lines, "")
    return text


def run(path: str) -> str:
    """Run the script at `path` as the main program of this rank; returns whose `Accelerator` it used."""
    assert not any(name.split(".")[0] == "accelerate" for name in sys.modules), "the real package is in the way"
    sys.meta_path.insert(0, Redirected())
    stand_in_for_datasets()
    found: dict[str, Any] = {"__name__": "__main__", "__file__": path}
    exec(compile(source(path), path, "exec"), found)
    used: Any = found.get("Accelerator") or found["PartialState"]
    return str(used.__module__)


SCRIPTS = ("test_ops", "test_sync", "test_script", "external_deps/test_metrics")


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        *((name, ranks) for name in SCRIPTS for ranks in (1, 2)),
        ("test_distributed_data_loop", 2),
        ("test_ddp_comm_hook", 2),
    ],
)
def test_a_script_of_the_wheel(name: str, ranks: int) -> None:
    package = importlib.util.find_spec("accelerate")
    assert package is not None
    assert package.origin is not None
    script = Path(package.origin).parent / "test_utils" / "scripts" / f"{name}.py"
    used = notebook_launcher(run, (str(script),), num_processes=ranks, cpu=True, timeout=100)
    assert [str(module).split(".")[0] for module in used] == ["notebook_accel"] * ranks
