"""`accelerate.big_modeling`."""

from notebook_accel._accelerate_paths._names import table as _table

__getattr__, __dir__ = _table(
    __name__,
    {
        "notebook_accel.bigmodel.attach": (
            "attach_align_device_hook attach_align_device_hook_on_blocks attach_execution_device_hook"
        ),
        "notebook_accel.bigmodel.casting": "attach_layerwise_casting_hooks",
        "notebook_accel.bigmodel.dispatch": (
            "cpu_offload cpu_offload_with_hook disk_offload dispatch_model load_checkpoint_and_dispatch"
        ),
        "notebook_accel.bigmodel.load": "load_checkpoint_in_model",
        "notebook_accel.bigmodel.meta": "init_empty_weights init_on_device",
        "notebook_accel.bigmodel.plan": "infer_auto_device_map",
    },
)
