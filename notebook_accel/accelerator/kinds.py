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
    XLA = "xla"
    NPU = "npu"
    XPU = "xpu"
    MLU = "mlu"
    SDAA = "sdaa"
    MUSA = "musa"
    HPU = "hpu"
    NEURON = "neuron"


class ComputeEnvironment(_Name):
    """Where a configuration file says that runs take place."""

    LOCAL_MACHINE = "LOCAL_MACHINE"
    AMAZON_SAGEMAKER = "AMAZON_SAGEMAKER"


class SageMakerDistributedType(_Name):
    """The kinds of set-ups on Amazon SageMaker."""

    NO = "NO"
    DATA_PARALLEL = "DATA_PARALLEL"
    MODEL_PARALLEL = "MODEL_PARALLEL"


class FP8BackendType(_Name):
    """The packages that train in fp8."""

    NO = "NO"
    TE = "TE"
    MSAMP = "MSAMP"
    AO = "AO"


class DynamoBackend(_Name):
    """The names of compilers that configuration files have; torch may know others."""

    NO = "NO"
    EAGER = "EAGER"
    AOT_EAGER = "AOT_EAGER"
    INDUCTOR = "INDUCTOR"
    AOT_TS_NVFUSER = "AOT_TS_NVFUSER"
    NVPRIMS_NVFUSER = "NVPRIMS_NVFUSER"
    CUDAGRAPHS = "CUDAGRAPHS"
    OFI = "OFI"
    FX2TRT = "FX2TRT"
    ONNXRT = "ONNXRT"
    TENSORRT = "TENSORRT"
    AOT_TORCHXLA_TRACE_ONCE = "AOT_TORCHXLA_TRACE_ONCE"
    TORCHXLA_TRACE_ONCE = "TORCHXLA_TRACE_ONCE"
    TVM = "TVM"
    HPU_BACKEND = "HPU_BACKEND"
    NEURON = "NEURON"


TORCH_DISTRIBUTED_OPERATION_TYPES = [
    f"MULTI_{name}" for name in ("GPU", "NPU", "MLU", "MUSA", "XPU", "CPU", "HPU", "SDAA", "NEURON")
] + ["FSDP", "DEEPSPEED", "MEGATRON_LM"]
"""The set-ups whose ranks talk through torch."""
