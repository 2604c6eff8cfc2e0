"""`accelerate.test_utils.training`."""

from notebook_accel.testing.regression import RegressionDataset as RegressionDataset
from notebook_accel.testing.regression import RegressionModel as RegressionModel
