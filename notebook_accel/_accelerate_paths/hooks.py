"""`accelerate.hooks`."""

from notebook_accel._accelerate_paths._names import table as _table

__getattr__, __dir__ = _table(
    __name__,
    {
        "notebook_accel.bigmodel.align": "AlignDevicesHook",
        "notebook_accel.bigmodel.attach": (
            "attach_align_device_hook attach_align_device_hook_on_blocks attach_execution_device_hook"
        ),
        "notebook_accel.bigmodel.casting": "LayerwiseCastingHook",
        "notebook_accel.bigmodel.hooks": (
            "ModelHook SequentialHook add_hook_to_module remove_hook_from_module remove_hook_from_submodules"
        ),
        "notebook_accel.bigmodel.swap": "CpuOffload UserCpuOffloadHook",
    },
)
