"""`accelerate.utils.bnb`."""

from notebook_accel._accelerate_paths._names import table as _table

__getattr__, __dir__ = _table(
    __name__,
    {"notebook_accel.bigmodel.quantize": "get_keys_to_not_convert has_4bit_bnb_layers load_and_quantize_model"},
)
