"""Tests that need a CUDA device: `python -m pytest tests/gpu` on such a machine; deselected elsewhere."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    import torch

    if torch.cuda.is_available():
        return
    here = [item for item in items if item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=here)
    items[:] = [item for item in items if item not in here]
