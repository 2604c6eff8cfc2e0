"""What there is to compute on, what the drivers say, and what nested data is made of."""

from __future__ import annotations

import collections
import os
from typing import Any

import pytest
import torch

from notebook_accel.comm import available, hardware, structure
from notebook_accel.errors import ConfigError


def test_this_machine_agrees_with_torch() -> None:
    assert available.is_cuda_available() == torch.cuda.is_available()
    assert available.is_mps_available() == torch.backends.mps.is_available()
    assert available.is_bf16_available() in (True, False)
    assert available.is_fp16_available()
    assert available.is_pippy_available()
    assert available.is_weights_only_available()
    kind, set_up = available.get_current_device_type()
    assert set_up == ("MULTI_GPU" if kind == "cuda" else f"MULTI_{kind.upper()}")


@pytest.mark.parametrize("name", ["mlu", "musa", "npu", "sdaa", "neuron"])
def test_devices_whose_package_is_missing(name: str) -> None:
    assert getattr(available, f"is_{name}_available")() is False
    assert getattr(available, f"is_{name}_available")(check_device=True) is False


def answering(answers: dict[str, str], folder: Any) -> str:
    """A folder with an `nvidia-smi` that answers so, by what it is asked for."""
    script = "#!/bin/sh\ncase $1 in\n" + "".join(f"*={key}) printf '{text}';;\n" for key, text in answers.items())
    program = folder / "nvidia-smi"
    program.write_text(script + "esac\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("names", "driver", "direct"),
    [
        ("NVIDIA GeForce RTX 4090\\nNVIDIA GeForce RTX 4090\\n", "545.1", False),
        ("NVIDIA GeForce RTX 4090\\nNVIDIA GeForce RTX 4090\\n", "550.54.14", True),
        ("NVIDIA GeForce RTX 4090\\n", "545.1", True),
        ("NVIDIA H100\\nNVIDIA H100\\n", "545.1", True),
    ],
)
def test_consumer_cards_need_a_new_driver(
    names: str, driver: str, direct: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", answering({"name": names, "driver_version": driver, "compute_cap": "8.9"}, tmp_path))
    assert hardware.check_cuda_p2p_ib_support() is direct
    assert hardware.get_gpu_info()[1] == names.count("RTX") + names.count("H100")
    hardware.check_cuda_fp8_capability.cache_clear()
    assert hardware.check_cuda_fp8_capability()
    hardware.check_cuda_fp8_capability.cache_clear()


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware.get_gpu_info() == ([], 0)
    assert hardware.check_cuda_p2p_ib_support()
    with pytest.raises(ConfigError, match="no driver of NVIDIA"):
        hardware.get_driver_version()


def test_place_by_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}.items():
        monkeypatch.setenv(name, value)
    assert hardware.get_cpu_distributed_information() == hardware.CPUInformation(1, 4, 0, 2)


def test_processors_near_to_a_gpu() -> None:
    class Driver:
        """Speaks as pynvml does: a word of 64 bits for each 64 processors."""

        @staticmethod
        def nvmlDeviceGetHandleByIndex(index: int) -> int:
            return index

        @staticmethod
        def nvmlDeviceGetCpuAffinity(handle: int, words: int) -> list[int]:
            return [0b1010, 0b1][:2]

    assert hardware._near(Driver, 0) == {1, 3, 64}


Pair = collections.namedtuple("Pair", ["first", "second"])


def test_what_data_is_made_of() -> None:
    data = {"a": torch.ones(2, 3), "b": Pair(torch.zeros(1, dtype=torch.int64), "text")}
    found = structure.get_data_structure(data)
    assert found["a"] == structure.TensorInformation(torch.Size([2, 3]), torch.float32)
    assert structure.is_tensor_information(found["b"].first)
    made = structure.initialize_tensors(found)
    assert (made["a"].shape, made["b"].first.dtype, made["b"].second) == ((2, 3), torch.int64, "text")
    assert structure.is_namedtuple(made["b"])
    assert not structure.is_namedtuple((1, 2))
    assert structure.honor_type(Pair(1, 2), (item * 2 for item in (1, 2))) == Pair(2, 4)
    assert structure.honor_type([0], iter((1, 2))) == [1, 2]
    assert structure.copy_tensor_to_devices(torch.ones(2)).tolist() == [1, 1]
