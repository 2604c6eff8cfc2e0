"""Every name of the peer's modules is there, or on the one list of what is planned. The list only shrinks."""

from __future__ import annotations

import importlib
import types
import warnings

import pytest

from notebook_accel._accelerate_paths._later import LATER
from notebook_accel.errors import NotYetError

MOST_LATER = 48
"""How many names may be on the list. When some are built, lower it; it never rises."""

# Whole modules: everything that the peer exports there.
WHOLE = ("", "utils")

# Names that the peer documents, or that code of others imports, of modules that hold more than these.
DOCUMENTED = {
    "big_modeling": (
        "init_empty_weights cpu_offload cpu_offload_with_hook disk_offload dispatch_model load_checkpoint_and_dispatch "
        "load_checkpoint_in_model attach_layerwise_casting_hooks"
    ),
    "commands.launch": "launch_command launch_command_parser",
    "data_loader": (
        "prepare_data_loader skip_first_batches DataLoaderShard DataLoaderDispatcher BatchSamplerShard "
        "IterableDatasetShard SeedableRandomSampler SkipBatchSampler SkipDataLoader"
    ),
    "hooks": (
        "ModelHook SequentialHook AlignDevicesHook LayerwiseCastingHook add_hook_to_module remove_hook_from_module "
        "remove_hook_from_submodules attach_align_device_hook attach_align_device_hook_on_blocks "
        "attach_execution_device_hook"
    ),
    "inference": "prepare_pippy",
    "launchers": "notebook_launcher debug_launcher",
    "local_sgd": "LocalSGD",
    "logging": "get_logger MultiProcessAdapter",
    "optimizer": "AcceleratedOptimizer",
    "parallelism_config": "ParallelismConfig",
    "scheduler": "AcceleratedScheduler",
    "state": "PartialState AcceleratorState GradientState is_initialized",
    "tracking": (
        "GeneralTracker register_tracker_class get_available_trackers on_main_process LOGGER_TYPE_TO_CLASS "
        "AimTracker CometMLTracker ClearMLTracker DVCLiveTracker MLflowTracker SwanLabTracker TensorBoardTracker "
        "TrackioTracker WandBTracker"
    ),
    "utils.deepspeed": (
        "DummyOptim DummyScheduler DeepSpeedEngineWrapper DeepSpeedOptimizerWrapper DeepSpeedSchedulerWrapper "
        "get_active_deepspeed_plugin"
    ),
}

SUBMODULES = (
    *("ao", "bnb", "constants", "dataclasses", "environment", "fsdp_utils", "imports", "launch", "megatron_lm"),
    *("memory", "modeling", "offload", "operations", "other", "random", "torch_xla", "tqdm", "transformer_engine"),
    "versions",
)


def theirs(path: str) -> set[str]:
    """The public names of a module of the peer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module(f"accelerate.{path}" if path else "accelerate")
    values = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {name for name, value in values.items() if not isinstance(value, types.ModuleType)}


def wanted() -> dict[str, set[str]]:
    """The names that are held against ours, by module."""
    found = {path: theirs(path) for path in WHOLE}
    found.update({path: set(names.split()) for path, names in DOCUMENTED.items()})
    exported = importlib.import_module("accelerate.utils")
    for name in SUBMODULES:  # what `utils` exports is also where it is defined
        path = f"utils.{name}"
        inside = vars(importlib.import_module(f"accelerate.{path}"))
        home = f"accelerate.{path}"
        constant = name == "constants"
        found[path] = {
            item
            for item in found["utils"] & set(inside)
            if getattr(getattr(exported, item), "__module__", home if constant else None) == home
        }
    return found


def state_of(path: str, name: str) -> str:
    """What happens when a name of ours is asked for: "built", "later", or what else went wrong."""
    module = importlib.import_module(f"notebook_accel.{path}" if path else "notebook_accel")
    try:
        getattr(module, name)
    except NotYetError as error:
        return "later" if isinstance(error, AttributeError) and "Meanwhile: " in str(error) else f"{error!r}"
    except AttributeError:
        return "missing"
    return "built"


WANTED = wanted()


@pytest.mark.parametrize("path", WANTED)
def test_every_name_is_built_or_says_what_to_do_meanwhile(path: str) -> None:
    assert WANTED[path], "a module of the peer without names: the test looks in the wrong place"
    missing_theirs = WANTED[path] - set(dir(importlib.import_module(f"accelerate.{path}" if path else "accelerate")))
    assert not missing_theirs, "the peer does not have these"
    found = {name: state_of(path, name) for name in sorted(WANTED[path])}
    wrong = {name: state for name, state in found.items() if state != ("later" if name in LATER else "built")}
    assert wrong == {}


def test_the_list_holds_names_of_the_peer_only_and_shrinks() -> None:
    everywhere = set().union(*WANTED.values())
    assert set(LATER) - everywhere == set()
    assert len(LATER) <= MOST_LATER


def test_existing_code_can_do_without_a_name_that_is_not_built() -> None:
    with pytest.raises(ImportError, match=r"notebook_accel\.utils\.DeepSpeedPlugin` is not supported yet. Meanwhile"):
        from notebook_accel.utils import DeepSpeedPlugin  # noqa: F401
    with pytest.raises(ImportError, match=r"notebook_accel\.DeepSpeedPlugin` is not supported yet. Meanwhile"):
        from notebook_accel import DeepSpeedPlugin as _
    many = "\n".join(f"name{number} = 1" for number in range(300))
    with pytest.raises(ImportError, match="Meanwhile"):
        exec(f"{many}\nfrom notebook_accel.utils import DeepSpeedPlugin", {})
    for path in ("", ".utils", ".utils.dataclasses"):
        module = importlib.import_module(f"notebook_accel{path}")
        assert not hasattr(module, "DeepSpeedPlugin")
        assert getattr(module, "DeepSpeedPlugin", None) is None
        with pytest.raises(NotYetError, match=r"DeepSpeedPlugin` is not supported yet. Meanwhile: leave it out"):
            _ = module.DeepSpeedPlugin


def test_all_names_at_once() -> None:
    found: dict[str, object] = {}
    exec("from notebook_accel.utils import *\nfrom notebook_accel.utils.operations import *", found)
    assert {"set_seed", "gather_object", "ProjectConfiguration", "is_tensor_information"} <= set(found)
    assert "dataclasses" not in found, "a module of ours would take the place of Python's own"
    assert not any(name.startswith("_") for name in found if name != "__builtins__")


def test_a_name_that_nobody_has_is_an_attribute_error() -> None:
    utils = importlib.import_module("notebook_accel.utils")
    assert not hasattr(utils, "no_such_name")
    assert "set_seed" in dir(utils)
    assert utils.set_seed is importlib.import_module("notebook_accel.utils.random").set_seed
