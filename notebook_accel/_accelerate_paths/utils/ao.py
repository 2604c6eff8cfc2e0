"""`accelerate.utils.ao`."""

from notebook_accel.precision.eight import convert_model_to_fp8_ao as convert_model_to_fp8_ao
from notebook_accel.precision.eight import filter_first_and_last_linear_layers as filter_first_and_last_linear_layers
from notebook_accel.precision.eight import filter_linear_layers as filter_linear_layers
from notebook_accel.precision.eight import find_first_last_linear_layers as find_first_last_linear_layers
from notebook_accel.precision.eight import has_ao_layers as has_ao_layers
