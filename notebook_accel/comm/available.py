"""What torch can compute on here, and in which precisions."""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.config import environ
from notebook_accel.config.installed import (
    is_msamp_available,
    is_torchao_available,
    is_transformer_engine_available,
)
from notebook_accel.config.versions import is_torch_version


def _backend(name: str, plugin: str | None = None) -> Any:
    """torch's module for a kind of device, or None; `plugin` is the package that brings it."""
    if plugin is not None:
        if importlib.util.find_spec(plugin) is None:
            return None
        importlib.import_module(plugin)
    return getattr(torch, name, None)


def _is_there(backend: Any, check_device: bool) -> bool:
    if backend is None:
        return False
    try:
        return bool(backend.is_available()) and (not check_device or backend.device_count() > 0)
    except RuntimeError:  # what these say when their driver finds no device
        return False


@functools.lru_cache
def is_cuda_available() -> bool:
    """Whether there is an NVIDIA GPU (or one of AMD, with torch for ROCm); does not touch the device."""
    with environ.patched({"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}):
        return torch.cuda.is_available()


def is_rocm_available() -> bool:
    """Whether torch computes on a GPU of AMD."""
    return torch.version.hip is not None and torch.cuda.is_available()


def is_mps_available(min_version: str = "1.12") -> bool:
    """Whether torch (at least in `min_version`) computes on the GPU of a Mac."""
    return is_torch_version(">=", min_version) and torch.backends.mps.is_available()


def is_mlu_available(check_device: bool = False) -> bool:
    """Whether there is an MLU (Cambricon)."""
    return _is_there(_backend("mlu", "torch_mlu"), check_device)


def is_musa_available(check_device: bool = False) -> bool:
    """Whether there is a MUSA GPU (Moore Threads)."""
    return _is_there(_backend("musa", "torch_musa"), check_device)


def is_npu_available(check_device: bool = False) -> bool:
    """Whether there is an NPU (Ascend)."""
    return _is_there(_backend("npu", "torch_npu"), check_device)


def is_sdaa_available(check_device: bool = False) -> bool:
    """Whether there is an SDAA device (Tecorigin)."""
    return _is_there(_backend("sdaa", "torch_sdaa"), check_device)


def is_hpu_available(init_hccl: bool = False) -> bool:
    """Whether there is a Gaudi (Intel); `init_hccl` also loads what its ranks talk through."""
    if importlib.util.find_spec("habana_frameworks") is None:
        return False
    if init_hccl:
        importlib.import_module("habana_frameworks.torch.distributed.hccl")
    return _is_there(_backend("hpu", "habana_frameworks.torch"), False)


def is_habana_gaudi1() -> bool:
    """Whether there is a Gaudi of the first generation."""
    if not is_hpu_available():
        return False
    kinds = importlib.import_module("habana_frameworks.torch.utils.experimental")
    return bool(kinds._get_device_type() == kinds.synDeviceType.synDeviceGaudi)


def is_xpu_available(check_device: bool = False) -> bool:
    """Whether there is a GPU of Intel."""
    return _is_there(_backend("xpu"), check_device)


def is_neuron_available(check_device: bool = False) -> bool:
    """Whether there is a Trainium or Inferentia (AWS)."""
    return _is_there(_backend("neuron", "torch_neuronx"), check_device)


def is_xccl_available() -> bool:
    """Whether torch was built with what GPUs of Intel talk through."""
    return bool(getattr(dist.distributed_c10d, "is_xccl_available", bool)())


@functools.lru_cache
def is_torch_xla_available(check_is_tpu: bool = False, check_is_gpu: bool = False) -> bool:
    """Whether torch_xla is installed (and computes on a TPU, or on a GPU). USE_TORCH_XLA=0 hides it."""
    if not environ.flag("USE_TORCH_XLA", True) or importlib.util.find_spec("torch_xla") is None:
        return False
    if not (check_is_tpu or check_is_gpu):
        return True
    kind = importlib.import_module("torch_xla.runtime").device_type()
    return kind == "TPU" if check_is_tpu else kind in ("GPU", "CUDA")


def is_bf16_available(ignore_tpu: bool = False) -> bool:
    """Whether models can compute in bfloat16 here."""
    if is_torch_xla_available(check_is_tpu=True):
        return not ignore_tpu
    for there, name in ((is_cuda_available, "cuda"), (is_mlu_available, "mlu"), (is_xpu_available, "xpu")):
        if there():
            return bool(getattr(torch, name).is_bf16_supported())
    return not is_mps_available() or torch.backends.mps.is_macos_or_newer(14, 0)


def is_fp16_available() -> bool:
    """Whether models can compute in float16 here."""
    return not is_habana_gaudi1()


def is_fp8_available() -> bool:
    """Whether a package that trains in fp8 is installed."""
    return is_msamp_available() or is_transformer_engine_available() or is_torchao_available()


def is_transformer_engine_mxfp8_available() -> bool:
    """Whether the installed Transformer Engine, and the GPU, have blocks of fp8 with scales of their own."""
    if not is_transformer_engine_available():
        return False
    return bool(importlib.import_module("transformer_engine.pytorch.fp8").check_mxfp8_support()[0])


def is_bitsandbytes_multi_backend_available() -> bool:
    """Whether the installed bitsandbytes computes on more than GPUs of NVIDIA."""
    if importlib.util.find_spec("bitsandbytes") is None:
        return False
    return "multi_backend" in getattr(importlib.import_module("bitsandbytes"), "features", set())


def is_pippy_available() -> bool:
    """Whether torch has pipelines."""
    return importlib.util.find_spec("torch.distributed.pipelining") is not None


def is_weights_only_available() -> bool:
    """Whether `torch.load` can be limited to named classes."""
    return hasattr(torch.serialization, "add_safe_globals")


_KINDS = (
    ("mlu", is_mlu_available),
    ("sdaa", is_sdaa_available),
    ("musa", is_musa_available),
    ("npu", is_npu_available),
    ("hpu", is_hpu_available),
    ("xpu", is_xpu_available),
    ("neuron", is_neuron_available),
)


def get_current_device_type() -> tuple[str, str]:
    """The kind of accelerator here, and the name of a set-up with several; ("cuda", "MULTI_GPU") where none is."""
    kind = next((name for name, there in _KINDS if there()), "cuda")
    return kind, "MULTI_GPU" if kind == "cuda" else f"MULTI_{kind.upper()}"
