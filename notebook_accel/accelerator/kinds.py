"""The peer's names of set-ups and precisions."""

from __future__ import annotations

import enum


class _Name(str, enum.Enum):
    """A name that equals its text, and prints as it."""

    def __str__(self) -> str:
        return str(self.value)


class DistributedType(_Name):
    """The kinds of set-ups. Computed from the strategy; read it, but ask `Accelerator` what you want to know."""

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    MULTI_NPU = "MULTI_NPU"
    MULTI_MLU = "MULTI_MLU"
    MULTI_SDAA = "MULTI_SDAA"
    MULTI_MUSA = "MULTI_MUSA"
    MULTI_NEURON = "MULTI_NEURON"
    MULTI_XPU = "MULTI_XPU"
    MULTI_HPU = "MULTI_HPU"
    DEEPSPEED = "DEEPSPEED"
    FSDP = "FSDP"
    XLA = "XLA"
    MEGATRON_LM = "MEGATRON_LM"


class PrecisionType(_Name):
    """The precisions that can be named."""

    NO = "no"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"


class RNGType(_Name):
    """The random number generators that can be kept alike on all ranks."""

    TORCH = "torch"
    CUDA = "cuda"
    GENERATOR = "generator"
