"""`accelerate.utils.other`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.checkpoint.standalone import (
    clean_state_dict_for_safetensors as clean_state_dict_for_safetensors,
)
from notebook_accel.checkpoint.standalone import load as load
from notebook_accel.checkpoint.standalone import save as save
from notebook_accel.comm.collectives import wait_for_everyone as wait_for_everyone
from notebook_accel.config.tools import convert_bytes as convert_bytes
from notebook_accel.config.tools import get_free_port as get_free_port
from notebook_accel.config.tools import get_pretty_name as get_pretty_name
from notebook_accel.config.tools import is_port_in_use as is_port_in_use
from notebook_accel.config.tools import merge_dicts as merge_dicts
from notebook_accel.config.tools import recursive_getattr as recursive_getattr
from notebook_accel.config.versions import check_os_kernel as check_os_kernel
from notebook_accel.strategies.compiling import compile_regions as compile_regions
from notebook_accel.strategies.wrappers import extract_model_from_parallel as extract_model_from_parallel
from notebook_accel.strategies.wrappers import get_model_tp_size as get_model_tp_size
from notebook_accel.strategies.wrappers import get_module_children_bottom_up as get_module_children_bottom_up
from notebook_accel.strategies.wrappers import has_compiled_regions as has_compiled_regions
from notebook_accel.strategies.wrappers import is_compiled_module as is_compiled_module
from notebook_accel.strategies.wrappers import model_has_dtensor as model_has_dtensor

__getattr__, __dir__ = _table(__name__, {})
