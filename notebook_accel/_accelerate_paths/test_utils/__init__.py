"""`accelerate.test_utils`."""

from notebook_accel.testing.regression import RegressionDataset as RegressionDataset
from notebook_accel.testing.regression import RegressionModel as RegressionModel
from notebook_accel.testing.regression import are_the_same_tensors as are_the_same_tensors
from notebook_accel.testing.regression import assert_exception as assert_exception
from notebook_accel.testing.regression import torch_device as torch_device
