"""`accelerate.utils.modeling`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.accelerator.casting import (
    get_mixed_precision_context_manager as get_mixed_precision_context_manager,
)
from notebook_accel.accelerator.casting import is_peft_model as is_peft_model
from notebook_accel.precision.mixing import get_grad_scaler as get_grad_scaler

__getattr__, __dir__ = _table(
    __name__,
    {
        "notebook_accel.bigmodel.device_map": "check_device_map clean_device_map",
        "notebook_accel.bigmodel.limits": "get_max_memory",
        "notebook_accel.bigmodel.load": "load_checkpoint_in_model",
        "notebook_accel.bigmodel.offload": "load_offloaded_weights",
        "notebook_accel.bigmodel.plan": "get_balanced_memory infer_auto_device_map",
        "notebook_accel.bigmodel.sizes": (
            "calculate_maximum_sizes compute_module_sizes compute_module_total_buffer_size "
            "convert_file_size_to_int dtype_byte_size get_max_layer_size get_non_persistent_buffers "
            "named_module_tensors"
        ),
        "notebook_accel.bigmodel.tensors": (
            "align_module_device check_device_same get_state_dict_from_offload "
            "get_state_dict_offloaded_model has_offloaded_params id_tensor_storage "
            "set_module_tensor_to_device"
        ),
        "notebook_accel.bigmodel.ties": (
            "check_tied_parameters_in_config check_tied_parameters_on_same_device find_tied_parameters retie_parameters"
        ),
        "notebook_accel.bigmodel.weights": "load_state_dict",
    },
)
