"""Models that are larger than the GPU's share: weights travel there while it computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from notebook_accel import dispatch_model, init_empty_weights, load_checkpoint_and_dispatch, load_checkpoint_in_model
from notebook_accel.bigmodel.align import AlignDevicesHook
from notebook_accel.bigmodel.dispatch import cpu_offload, cpu_offload_with_hook, disk_offload
from tests.unit.bigmodel.tiny import INPUTS, Tiny, output, plain, save

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

PLACES = {
    "whole": {"device_map": {"": 0}},
    "auto": {"device_map": "auto"},
    "a part in memory": {"device_map": "auto", "max_memory": {0: 9000, "cpu": 10**6}},
    "a part on disk": {"device_map": "auto", "max_memory": {0: 9000, "cpu": 6000}},
    "all in memory": {"device_map": {"": "cpu"}, "main": 0},
    "all on disk": {"device_map": {"": "disk"}, "main": 0},
    "blocks at once": {"device_map": "auto", "max_memory": {0: 0, "cpu": 10**6}, "preload_module_classes": ["Block"]},
}


def empty(tied):
    with init_empty_weights():
        return Tiny(tied=tied).eval()


def spread(checkpoint, place, tied):
    place = dict(place)
    main = place.pop("main", None)
    if main is None:
        return load_checkpoint_and_dispatch(empty(tied), checkpoint, strict=True, **place)
    model = empty(tied)
    load_checkpoint_in_model(model, checkpoint, **place)
    return dispatch_model(model, place["device_map"], main_device=main)


@pytest.mark.parametrize("tied", [True, False])
def test_every_placement_gives_what_the_gpu_gives(tmp_path, tied):
    expected = plain(tied).to("cuda:0")(INPUTS.to("cuda:0"))
    checkpoint = save(plain(tied), tmp_path, "shards")
    for name, place in PLACES.items():
        model = spread(checkpoint, place, tied)
        for _ in range(3):
            found = model(INPUTS.to("cuda:0"))
            torch.testing.assert_close(found, expected, msg=name)
        state = model.state_dict()
        assert all(torch.equal(value.cpu(), plain(tied).state_dict()[key]) for key, value in state.items()), name


def test_inputs_may_be_on_the_cpu_and_outputs_return_there(tmp_path):
    model = spread(save(plain(), tmp_path), PLACES["a part on disk"], True)
    assert output(model).device.type == "cpu"


def test_the_gpu_holds_a_block_or_two_of_what_is_offloaded():
    width, count = 2048, 12
    model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(count)])
    block = 4 * width**2
    inputs = torch.randn(4, width, device="cuda:0")
    expected = inputs
    for layer in model:
        expected = expected @ layer.weight.detach().to("cuda:0").T
    cpu_offload(model, execution_device=0)
    courier = next(part._hf_hook._courier for part in model if isinstance(part._hf_hook, AlignDevicesHook))
    with torch.no_grad():
        model(inputs)
        late = courier.late
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            torch.testing.assert_close(model(inputs), expected)
    assert courier.late <= late + 1
    assert torch.cuda.max_memory_allocated() - before <= 4 * block


def test_whole_models_take_turns(tmp_path):
    one, two = plain(), plain()
    expected = output(plain())
    one, first = cpu_offload_with_hook(one, 0)
    two, second = cpu_offload_with_hook(two, 0, prev_module_hook=first)
    torch.testing.assert_close(output(one).cpu(), expected)
    torch.testing.assert_close(output(two).cpu(), expected)
    assert one.start.device.type == "cpu"
    assert two.start.device.type == "cuda"
    second.offload()
    assert two.start.device.type == "cpu"
    torch.testing.assert_close(output(disk_offload(plain(), tmp_path, execution_device=0)), expected)
