"""Digests by which ranks are compared; the comparison itself is tested on real ranks."""

from __future__ import annotations

import pytest
import torch

from notebook_accel.comm import check
from notebook_accel.comm.check import Difference, SyncReport
from notebook_accel.comm.process import Process
from notebook_accel.errors import ArgumentTypeError


def test_a_digest_is_that_of_bytes_dtype_and_shape():
    one = torch.arange(6.0).reshape(2, 3)
    assert check.digest(one) == check.digest(one.clone())
    assert check.digest(one.t()) == check.digest(one.t().contiguous())
    others = [one.reshape(3, 2), one.double(), one + 1e-7, one.bfloat16(), torch.empty(0), torch.tensor(1.0)]
    assert len({check.digest(item) for item in [one, *others]}) == 7


def test_optimizers_differ_by_state_and_by_setting():
    def optimizer(rate=0.1, steps=1):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.ones(3))
        made = torch.optim.AdamW([weight], lr=rate)
        for _ in range(steps):
            weight.sum().backward()
            made.step()
        return made

    same = check.state_digest(optimizer())
    assert same == check.state_digest(optimizer())
    assert same != check.state_digest(optimizer(steps=2))
    assert same != check.state_digest(optimizer(rate=0.2))


def test_alone_everything_is_in_sync():
    report = check.check_sync(torch.nn.BatchNorm1d(3), process=Process())
    assert report
    assert report.checked == 5
    with pytest.raises(ArgumentTypeError, match="argument 2 of check_sync is a str"):
        check.check_sync(torch.ones(1), "text", process=Process())


def test_a_report_names_what_differs_by_rank():
    found = Difference("parameter", "0.weight", ((0, 1, 3), (2,)), 0.00123)
    report = SyncReport((found,), {"parameter": 3}, (Difference("random state", "torch", ((0,), (1,))),), 5)
    assert not report
    assert str(report).splitlines() == [
        "Not in sync: 5 tensors and settings were compared.",
        "  parameter `0.weight`: rank 2 differs from ranks 0, 1, 3 by up to 0.00123 (and 2 more of this kind)",
        "  random state `torch`: rank 1 differs from rank 0 (no error where ranks are to draw different numbers)",
    ]
