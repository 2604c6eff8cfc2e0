"""`accelerate.utils.offload`."""

from notebook_accel._accelerate_paths._names import table as _table

__getattr__, __dir__ = _table(
    __name__,
    {
        "notebook_accel.bigmodel.offload": (
            "OffloadedWeightsLoader PrefixedDataset extract_submodules_state_dict load_offloaded_weight "
            "offload_state_dict offload_weight save_offload_index"
        ),
    },
)
