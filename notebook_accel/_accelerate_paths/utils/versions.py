"""`accelerate.utils.versions`."""

from notebook_accel.config.versions import compare_versions as compare_versions
from notebook_accel.config.versions import is_torch_version as is_torch_version
