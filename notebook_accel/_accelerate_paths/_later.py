"""Names of the peer's modules that this version does not have, each with what to do meanwhile.

The list only shrinks; a test holds it against the real package and against what is here.
"""

from __future__ import annotations

import dis
import sys
import types

from notebook_accel.errors import NotYetError

_ENGINE = "leave it out: the model trains with DistributedDataParallel"
_MESH = "leave it out: all ranks are data parallel"
_STARTING = "start ranks with notebook_launcher(), or scripts with `notebook-accel launch`"
_EIGHT = 'use mixed_precision="fp8", which trains with torchao'

_BY_HINT: tuple[tuple[str, str], ...] = (
    (
        _ENGINE,
        """
        DeepSpeedPlugin DeepSpeedSequenceParallelConfig DeepSpeedEngineWrapper DeepSpeedOptimizerWrapper
        DeepSpeedSchedulerWrapper GatheredParameters compile_regions_deepspeed
        get_active_deepspeed_plugin
        FullyShardedDataParallelPlugin compile_regions_fsdp2 disable_fsdp_ram_efficient_loading
        enable_fsdp_ram_efficient_loading ensure_weights_retied fsdp2_apply_ac fsdp2_canonicalize_names
        fsdp2_load_full_state_dict fsdp2_prepare_model fsdp2_switch_optimizer_parameters get_fsdp2_grad_scaler
        load_fsdp_model load_fsdp_optimizer save_fsdp_model save_fsdp_optimizer
        AbstractTrainStep BertTrainStep GPTTrainStep MegatronLMDummyDataLoader MegatronLMDummyScheduler
        MegatronLMPlugin T5TrainStep add_model_config_to_megatron_parser avg_losses_across_data_parallel_group
        """,
    ),
    (
        _MESH,
        """
        ParallelismConfig TorchContextParallelConfig TorchTensorParallelConfig TorchTensorParallelPlugin
        """,
    ),
    (
        _STARTING,
        """
        PrepareForLaunch TORCH_LAUNCH_PARAMS prepare_deepspeed_cmd_env prepare_multi_gpu_env
        prepare_sagemager_args_inputs prepare_simple_launcher_cmd_env prepare_tpu install_xla
        """,
    ),
    (_EIGHT, "apply_fp8_autowrap contextual_fp8_autocast convert_model deepspeed_required"),
)

LATER: dict[str, str] = {name: hint for hint, names in _BY_HINT for name in names.split()}


class NotYetImport(NotYetError, ImportError):
    """A name that is not there yet; an ImportError too, so that code which can do without it does."""


class NotYetAttribute(NotYetError, AttributeError):
    """The same where no import asks for it: an AttributeError, so that `hasattr` answers False."""


def missing(module: str, name: str) -> Exception:
    """The error for a name that the module called `module` does not have; for its `__getattr__` to raise."""
    if name not in LATER:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    kind = NotYetImport if _is_import(sys._getframe(2)) else NotYetAttribute
    return kind(f"`{module}.{name}` is not supported yet. Meanwhile: {LATER[name]}.")


def _is_import(asking: types.FrameType) -> bool:
    """Whether `asking` stands at the `name` of `from … import name`.

    Python makes an ImportError with a text of its own of an AttributeError there, and ours says what to do. One
    exception cannot be both: the two have fields of their own in C.
    """
    code, at = asking.f_code.co_code, asking.f_lasti
    while code[at] == dis.EXTENDED_ARG:  # 3.10 stands before it, in modules with many names
        at += 2
    return code[at] == dis.opmap["IMPORT_FROM"]
