"""Finding out where this process stands."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.config import accelerate_names
from notebook_accel.errors import ConfigError

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*NAMES, accelerate_names.USE_CPU):
        monkeypatch.delenv(name, raising=False)
    before = processes.use(None)
    yield
    processes.use(before)


def set_names(patch: pytest.MonkeyPatch, *values: str) -> None:
    for name, value in zip(NAMES, values):
        patch.setenv(name, value)


def test_a_lone_process() -> None:
    found = processes.current(cpu=True)
    assert (found.rank, found.world_size, found.backend, found.alone, found.launched) == (0, 1, None, True, False)
    assert str(found.device) == "cpu"


def test_a_device_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, device in {"cpu:64": "cpu:64", "meta": "meta", "cuda": "cuda:1", "cuda:5": "cuda:5"}.items():
        monkeypatch.setenv(accelerate_names.TORCH_DEVICE, said)
        assert str(processes.choose_device(1, 2)) == device
    assert str(processes.discover(cpu=True).device) == "cpu"
    monkeypatch.setenv(accelerate_names.TORCH_DEVICE, "toaster")
    with pytest.raises(ConfigError, match="ACCELERATE_TORCH_DEVICE is 'toaster'"):
        processes.discover()


def test_torchs_names(monkeypatch: pytest.MonkeyPatch) -> None:
    set_names(monkeypatch, "3", "4", "1", "2")
    monkeypatch.setenv(accelerate_names.USE_CPU, "true")
    found = processes.current()
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (3, 4, 1, 2)
    assert (found.backend, found.device) == ("gloo", torch.device("cpu"))


def test_names_of_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    found = processes.discover(cpu=True)
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (1, 2, 1, 2)


def test_a_world_size_without_a_rank_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert processes.discover(cpu=True).alone


@pytest.mark.parametrize(("rank", "size"), [("2", "2"), ("1", ""), ("first", "2"), ("-1", "2")])
def test_contradictions_are_refused(monkeypatch: pytest.MonkeyPatch, rank: str, size: str) -> None:
    set_names(monkeypatch, rank, size)
    with pytest.raises(ConfigError):
        processes.current()
    assert not processes.is_set()


def test_no_meeting_point_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_names(monkeypatch, "0", "2")
    with pytest.raises(ConfigError, match="MASTER_ADDR and MASTER_PORT not set"):
        processes.join(processes.current(cpu=True))


def test_an_existing_group_counts_more_than_names(monkeypatch: pytest.MonkeyPatch) -> None:
    set_names(monkeypatch, "1", "2")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        found = processes.current(cpu=True)
        processes.join(found)
        assert (found.rank, found.world_size) == (0, 1)
    finally:
        processes.leave_group(Process())
    assert not dist.is_initialized()


def test_it_is_asked_for_once_and_can_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    first = processes.current()
    set_names(monkeypatch, "1", "2")
    assert processes.current() is first
    processes.reset()
    assert processes.current().rank == 1


def test_a_thread_has_the_process_of_the_main_thread_unless_it_sets_its_own() -> None:
    main, own = Process(rank=1, world_size=2), Process(rank=0, world_size=2)
    processes.use(main)
    seen: list[Process] = []

    def replica() -> None:
        seen.append(processes.current())
        processes.use(own)
        seen.append(processes.current())

    thread = threading.Thread(target=replica)
    thread.start()
    thread.join()
    assert seen == [main, own]
    assert processes.current() is main


def test_the_same_rank_on_the_cpu() -> None:
    gpu = Process(1, 2, 1, 2, torch.device("cuda", 1), "nccl")
    cpu = gpu.on_cpu()
    assert (cpu.rank, cpu.device, cpu.backend) == (1, torch.device("cpu"), "gloo")
    assert cpu.on_cpu() is cpu
    assert cpu.attached is gpu.attached
