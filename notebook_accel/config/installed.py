"""Which packages are installed, found without importing them."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

from notebook_accel.config import environ
from notebook_accel.config.versions import compare_versions
from notebook_accel.errors import NotebookAccelError


class NotInstalledError(NotebookAccelError, ImportError):
    """What was asked for needs a package that is not installed."""


def version_of(module: str, *distributions: str) -> str | None:
    """The version of the package that brings `module`; None where it is not installed, or only a folder of that name.

    `distributions` are the names it may be installed under, by default the module's own.
    """
    if importlib.util.find_spec(module) is None:
        return None
    for name in distributions or (module,):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _probe(module: str, *distributions: str) -> Callable[[], bool]:
    def is_available() -> bool:
        return version_of(module, *distributions) is not None

    is_available.__doc__ = f"Whether the package that brings `{module}` is installed."
    return is_available


is_amdsmi_available = _probe("amdsmi")
is_boto3_available = _probe("boto3")
is_clearml_available = _probe("clearml")
is_comet_ml_available = _probe("comet_ml", "comet-ml", "comet_ml")
is_datasets_available = _probe("datasets")
is_deepspeed_available = _probe("deepspeed")
is_dvclive_available = _probe("dvclive")
is_import_timer_available = _probe("import_timer", "import-timer", "import_timer")
is_lomo_available = _probe("lomo_optim", "lomo-optim", "lomo_optim")
is_matplotlib_available = _probe("matplotlib")
is_mlflow_available = _probe("mlflow", "mlflow", "mlflow-skinny")
is_msamp_available = _probe("msamp", "ms-amp")
is_pandas_available = _probe("pandas")
is_peft_available = _probe("peft")
is_pynvml_available = _probe("pynvml", "pynvml", "nvidia-ml-py")
is_pytest_available = _probe("pytest")
is_sagemaker_available = _probe("sagemaker")
is_schedulefree_available = _probe("schedulefree")
is_swanlab_available = _probe("swanlab")
is_timm_available = _probe("timm")
is_torchdata_available = _probe("torchdata")
is_torchvision_available = _probe("torchvision")
is_trackio_available = _probe("trackio")
is_transformer_engine_available = _probe("transformer_engine", "transformer-engine", "transformer_engine")
is_transformers_available = _probe("transformers")
is_triton_available = _probe("triton", "triton", "triton-xpu")
is_wandb_available = _probe("wandb")


def is_aim_available() -> bool:
    """Whether aim is installed, in a version before 4 (which is another program)."""
    return _is_at("aim", "<", "4.0.0")


def is_bnb_available(min_version: str | None = None) -> bool:
    """Whether bitsandbytes is installed (at least in `min_version`)."""
    return _is_at("bitsandbytes", ">=", min_version or "0")


def is_4bit_bnb_available() -> bool:
    """Whether the installed bitsandbytes has weights of 4 bits."""
    return is_bnb_available("0.39.0")


def is_8bit_bnb_available() -> bool:
    """Whether the installed bitsandbytes has weights of 8 bits."""
    return is_bnb_available("0.37.2")


def is_megatron_lm_available() -> bool:
    """Whether Megatron-LM is installed, and a run asks for it (ACCELERATE_USE_MEGATRON_LM)."""
    asked = environ.flag("ACCELERATE_USE_MEGATRON_LM")
    found = version_of("megatron", "megatron-core") if asked else None
    return found is not None and compare_versions(found, ">=", "0.8.0") and _has("megatron.training")


def is_rich_available() -> bool:
    """Whether rich is installed, and its output asked for (ACCELERATE_ENABLE_RICH)."""
    return version_of("rich") is not None and environ.flag("ACCELERATE_ENABLE_RICH")


def is_tensorboard_available() -> bool:
    """Whether TensorBoard's writer is installed."""
    return version_of("tensorboard") is not None or version_of("tensorboardX") is not None


def is_torchao_available() -> bool:
    """Whether torchao is installed, in a version that trains in fp8."""
    return _is_at("torchao", ">=", "0.6.1")


def is_torchdata_stateful_dataloader_available() -> bool:
    """Whether the installed torchdata has a loader that can be resumed."""
    return _is_at("torchdata", ">=", "0.8.0")


def torchao_required(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the function raises `NotInstalledError` where torchao is missing."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not is_torchao_available():
            raise NotInstalledError(f"`{function.__name__}` needs torchao. Install it: pip install torchao")
        return function(*args, **kwargs)

    return checked


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _is_at(module: str, operation: str, version: str) -> bool:
    found = version_of(module)
    return found is not None and compare_versions(found, operation, version)
