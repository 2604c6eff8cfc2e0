"""Execute a notebook in a real kernel, and print what it measured.

    python -m notebook_accel.testing.notebook notebooks/01_quickstart.ipynb [--out FOLDER]

The notebook may leave a dictionary named `summary`; it is what gets printed, a line for each entry.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

_SUMMARY = "import json as _json; print(_json.dumps(globals().get('summary', {}), default=str))"


def execute(path: Path, out: Path, timeout: float = 600) -> dict[str, Any]:
    """The notebook's `summary`, after running it in a kernel of this interpreter.

    The executed notebook is written to `out`, also when a cell fails. Raises nbclient's `CellExecutionError`.
    """
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    # This interpreter's own kernel, whatever kernels are registered on the machine.
    manager = AsyncKernelManager(kernel_name="python3")
    quiet = "--IPKernelApp.log_level=ERROR"  # newer kernels warn of what is normal on one machine
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", quiet]
    client = NotebookClient(notebook, timeout=timeout, km=manager, resources={"metadata": {"path": str(path.parent)}})
    out.parent.mkdir(parents=True, exist_ok=True)
    cells = len(notebook.cells)
    notebook.cells.append(nbformat.v4.new_code_cell(_SUMMARY))
    try:
        client.execute()
        summary: dict[str, Any] = json.loads(notebook.cells[-1].outputs[0]["text"])
    finally:
        del notebook.cells[cells:]
        nbformat.write(notebook, out)
    return summary


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 0 when every cell ran."""
    parser = argparse.ArgumentParser(prog="python -m notebook_accel.testing.notebook", description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, help="folder of the executed notebook (default: executed/ beside it)")
    options = parser.parse_args(arguments)
    if not options.notebook.is_file():
        parser.error(f"there is no notebook {options.notebook}")
    out = (options.out or options.notebook.parent / "executed") / options.notebook.name
    print(f"Running {options.notebook} in a Jupyter kernel …", flush=True)
    try:
        summary = execute(options.notebook, out)
    except Exception as error:  # noqa: BLE001 - whatever a cell raised; its traceback is in the message
        print(f"{error}\nThe notebook failed. As far as it ran, it is in {out}.", file=sys.stderr)
        return 1
    width = max((len(name) for name in summary), default=0)
    for name, value in summary.items():
        print(f"  {name.replace('_', ' ').ljust(width)}  {value}")
    print(f"The executed notebook is {out}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
