"""Inference through a pipeline: each rank runs a part of the model, and batches flow through in pieces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from notebook_accel.bigmodel.plan import get_balanced_memory, infer_auto_device_map
from notebook_accel.bigmodel.sizes import compute_module_sizes
from notebook_accel.comm import collectives, process, tree
from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError


def prepare_pippy(
    model: torch.nn.Module,
    split_points: str | Sequence[str] = "auto",
    no_split_module_classes: Sequence[str] | str | None = None,
    example_args: tuple[Any, ...] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    num_chunks: int | None = None,
    gather_output: bool = False,
) -> torch.nn.Module:
    """`model`, whose forward pass runs its parts on the ranks, one after the other, a batch in `num_chunks` pieces.

    All ranks call it, with a batch on rank 0 (others may give none); batches may have any size. The last rank returns
    the output, with `gather_output` every rank; the others return None. `split_points` are the modules with which
    parts begin, "auto" cuts where the parts take about the same memory. The examples show what is passed (on one rank:
    a whole batch, along dimension 0); `num_chunks` is the number of ranks by default. One rank: the model as it is.

    Raises `ConfigError` when the model cannot be cut into as many parts as there are ranks.
    """
    here = process.current()
    if here.alone:
        return model
    process.join(here)
    chunks = here.world_size if num_chunks is None else num_chunks
    points = _points(model, split_points, here.world_size, no_split_module_classes)
    runner = _Pipeline(model, points, here, chunks, (example_args, dict(example_kwargs or {})), gather_output)
    model.hf_split_points = points  # type: ignore[assignment]
    model.pippy_stage = runner.schedule  # type: ignore[assignment]
    model.forward = runner
    return model


def _points(
    model: torch.nn.Module, split_points: str | Sequence[str], ranks: int, no_split: Sequence[str] | str | None
) -> list[str]:
    if split_points != "auto":
        points = [split_points] if isinstance(split_points, str) else list(split_points)
        if len(points) != ranks - 1:
            raise ConfigError(
                f"{ranks} ranks need {ranks - 1} split_points, one where each further part begins; these are "
                f"{len(points)}: {', '.join(points) or 'none'}."
            )
        return points
    total = compute_module_sizes(model)[""]
    limits = get_balanced_memory(model, dict.fromkeys(range(ranks), total), no_split)
    device_map = infer_auto_device_map(model, limits, no_split, clean_result=False)
    modules = {name for name, _ in model.named_modules()}
    found: dict[Any, str] = {}
    for name, rank in device_map.items():
        if name in modules:
            found.setdefault(rank, name)
    missing = [rank for rank in range(1, ranks) if rank not in found]
    if missing:
        raise ConfigError(
            f"{type(model).__name__} has no {ranks} parts of similar size that could run on a rank each: it can be cut "
            f"into {len(found)}. Use fewer ranks, or name split_points."
        )
    return [found[rank] for rank in range(1, ranks)]


class _Pipeline:
    """The forward pass of a model that is cut into parts."""

    def __init__(
        self,
        model: torch.nn.Module,
        points: Sequence[str],
        here: Process,
        chunks: int,
        examples: tuple[tuple[Any, ...], dict[str, Any]],
        gather_output: bool,
    ) -> None:
        from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline

        self._process, self._chunks, self._gather = here, chunks, gather_output
        size = tree.find_batch_size(examples)
        if size is None:
            raise ConfigError(
                "prepare_pippy needs example_args or example_kwargs with a tensor: a batch like those that will come."
            )
        self._piece = math.ceil(size / chunks)
        shown, named = tree.send_to_device(_rows(examples, 0, self._piece), "cpu")
        model.to("cpu")
        cuts = dict.fromkeys(points, SplitPoint.BEGINNING)
        pipe = pipeline(model, mb_args=tuple(shown), mb_kwargs=named, split_spec=cuts)
        if pipe.num_stages != here.world_size:
            raise ConfigError(
                f"split_points {', '.join(points)} cut the model into {pipe.num_stages} parts; there are "
                f"{here.world_size} ranks."
            )
        self.schedule = ScheduleGPipe(pipe.build_stage(here.rank, here.device), chunks)

    @property
    def _is_first(self) -> bool:
        return self._process.rank == 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = tree.find_batch_size((args, kwargs)) if self._is_first else None
        size = collectives.broadcast_object_list([given], process=self._process)[0]
        if size is None:
            raise ConfigError("The batch that rank 0 gave has no tensor, so that it cannot be cut into pieces.")
        full = self._piece * self._chunks
        outputs = [self._run((args, kwargs), start, full) for start in range(0, size, full)]
        output = None
        if self._process.rank == self._process.world_size - 1:
            output = tree.map_tensors(lambda tensor: tensor[:size], tree.concatenate(outputs))
        if not self._gather:
            return output
        sent = [tree.map_tensors(torch.Tensor.cpu, output)]
        received = collectives.broadcast_object_list(sent, self._process.world_size - 1, process=self._process)[0]
        return tree.send_to_device(received, self._process.device)

    def _run(self, batch: tuple[tuple[Any, ...], dict[str, Any]], start: int, full: int) -> Any:
        with torch.no_grad():
            if not self._is_first:
                return self.schedule.step()
            args, kwargs = tree.send_to_device(_rows(batch, start, full), self._process.device)
            return self.schedule.step(*args, **kwargs)


def _rows(batch: Any, start: int, count: int) -> Any:
    """`count` rows of every tensor from `start` on; the last row stands for those that are missing."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.ndim:
            return tensor
        part = tensor[start : start + count]
        return torch.cat([part, *[part[-1:]] * (count - len(part))])

    return tree.map_tensors(cut, batch)
