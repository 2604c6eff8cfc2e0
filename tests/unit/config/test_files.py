"""Configuration files: Accelerate's keys read and written back without loss; broken and hostile ones refused."""

from __future__ import annotations

import json
import re
import time

import pytest
import yaml as pyyaml

from notebook_accel.config import load, paths, rules
from notebook_accel.config import yaml as reader
from notebook_accel.config.schema import Machine
from notebook_accel.errors import ConfigError, NotYetError

CPU = Machine(cpus=2)

COMMON = """\
# my comment, which stays
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: {kind}   # and this one
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: {precision}
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: {cpu}
"""

SECTIONS = {
    "FSDP": """\
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_version: 2
""",
    "DEEPSPEED": """\
deepspeed_config:
  deepspeed_multinode_launcher: standard
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
""",
    "MEGATRON_LM": """\
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_num_micro_batches: 2
  megatron_lm_pp_degree: 2
  megatron_lm_recompute_activations: true
  megatron_lm_sequence_parallelism: false
  megatron_lm_tp_degree: 2
  megatron_lm_use_distributed_optimizer: true
""",
    "XLA": "tpu_name: mine\ntpu_zone: us-central1-a\ncommands:\n- pip install x\n- echo hello\ntpu_vm: [one, two]\n",
    "MULTI_CPU": "mpirun_config:\n  mpirun_hostfile: /hosts\n",
    "MULTI_GPU": "gpu_ids: 0,1\nparallelism_config:\n  parallelism_config_dp_shard_size: 2\n",
}
ALL_KINDS = (
    *("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU"),
    *("MULTI_NEURON", "DEEPSPEED", "FSDP", "XLA", "MEGATRON_LM"),
)
LATER = set(ALL_KINDS) - {"NO", "MULTI_CPU", "MULTI_GPU", "MULTI_XPU"}


def write(folder, text, name="config.yaml"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("precision", ["'no'", "bf16"])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_kind_is_read_and_written_back_unchanged(tmp_path, kind, precision):
    cpu = "true" if kind == "MULTI_CPU" else "false"
    text = COMMON.format(kind=kind, precision=precision, cpu=cpu) + SECTIONS.get(kind, "")
    path = write(tmp_path, text)
    config = load.read(path)
    assert (config.num_processes, config.mixed_precision) == (2, precision.strip("'"))
    load.save(config, path)
    assert pyyaml.safe_load(path.read_text()) == pyyaml.safe_load(text)
    assert re.findall("#.*", path.read_text()) == re.findall("#.*", text)
    copy = load.save(config, tmp_path / "copy.yaml")
    assert copy.read_text() == path.read_text()


@pytest.mark.parametrize("kind", sorted(LATER))
def test_a_kind_that_is_not_supported_is_kept_shown_and_refused_in_one_sentence(tmp_path, kind):
    path = write(tmp_path, COMMON.format(kind=kind, precision="'no'", cpu="false") + SECTIONS.get(kind, ""))
    config = load.read(path)
    assert config.distributed_type == kind
    assert kind in load.explain(config)
    with pytest.raises(NotYetError, match=r"line 4\) asks for .* not supported yet") as caught:
        rules.refuse_unsupported(config)
    assert "\n" not in str(caught.value)


def test_sagemaker(tmp_path):
    text = (
        "additional_args:\n  max_wait: 10\nbase_job_name: job\ncompute_environment: AMAZON_SAGEMAKER\n"
        "distributed_type: DATA_PARALLEL\nec2_instance_type: ml.p3.2xlarge\niam_role_name: role\nimage_uri: null\n"
        "mixed_precision: 'no'\nnum_machines: 2\nprofile: default\npy_version: py310\npytorch_version: 2.0.0\n"
        "region: us-east-1\nsagemaker_inputs_file: null\nuse_cpu: false\n"
    )
    path = write(tmp_path, text)
    config = load.read(path)
    assert (config.ec2_instance_type, config.additional_args) == ("ml.p3.2xlarge", {"max_wait": 10})
    load.save(config, path)
    assert path.read_text() == text
    with pytest.raises(NotYetError, match="Amazon SageMaker"):
        rules.refuse_unsupported(config)


def test_fairscale_is_told_what_superseded_it(tmp_path):
    config = load.read(write(tmp_path, "distributed_type: FAIRSCALE\n"))
    with pytest.raises(NotYetError, match="FSDP has superseded"):
        rules.refuse_unsupported(config)


def test_fp8_in_both_spellings(tmp_path):
    written = (
        "fp8_config:\n  amax_compute_algorithm: max\n  amax_history_length: 64\n  backend: TE\n  fp8_format: E4M3\n"
        "  override_linear_precision: [false, false, true]\n  use_autocast_during_eval: true\nmixed_precision: fp8\n"
    )
    config = load.read(write(tmp_path, written))
    assert (config.fp8_backend, config.fp8_amax_history_len, config.fp8_amax_compute_algo) == ("TE", 64, "max")
    assert config.fp8_override_linear_precision == (False, False, True)
    flags = written.replace("amax_history_length", "fp8_amax_history_len").replace(" backend", " fp8_backend")
    assert load.of_text(flags).model_dump() == config.model_dump()


def test_keys_that_no_version_reads_any_more(tmp_path):
    with pytest.raises(ConfigError, match=r"line 2: `ipex_config` is of an older version .*remove it\.$"):
        load.read(write(tmp_path, "num_processes: 2\nipex_config:\n  ipex: true\n"))
    old = "distributed_type: FSDP\nfsdp_config:\n  fsdp_backward_prefetch_policy: BACKWARD_PRE\n"
    assert load.read(write(tmp_path, old)).fsdp_backward_prefetch == "BACKWARD_PRE"


def test_old_keys(tmp_path):
    config = load.of_text("fp16: true\ndynamo_backend: INDUCTOR\nnum_processes: -1\n")
    assert (config.mixed_precision, config.dynamo_backend, config.num_processes) == ("fp16", "inductor", None)
    assert str(config.source("mixed_precision")) == "the YAML text, line 1"


def test_json(tmp_path):
    path = write(tmp_path, json.dumps({"compute_environment": "LOCAL_MACHINE", "num_processes": 2}), "c.json")
    config = load.resolve({"mixed_precision": "bf16"}, load.read(path))
    load.save(config, path)
    assert json.loads(path.read_text())["mixed_precision"] == "bf16"


def test_a_change_keeps_comments_and_sections_of_other_tools(tmp_path):
    path = write(
        tmp_path, "# one\nmixed_precision: 'no' # two\n\nother_tool:\n  # three\n  key: [1, 2]\nnum_processes: 2\n"
    )
    load.save(load.resolve({"mixed_precision": "bf16", "cpu": True}, load.read(path)), path)
    text = path.read_text()
    assert [mark in text for mark in ("# one", "'bf16' # two", "# three", "key: [1, 2]", "use_cpu: true")] == [True] * 5
    assert load.read(path).mixed_precision == "bf16"


def test_one_that_is_written_over_another_file_is_whole(tmp_path):
    config = load.resolve({"num_processes": 2})
    path = load.save(config, tmp_path / "c.yaml")
    once = path.read_text()
    assert load.save(config, path).read_text() == once
    assert "compute_environment: LOCAL_MACHINE" in once


def test_what_other_readers_see_is_the_same(tmp_path):
    """Older YAML takes no, on and 1_0 for something else than text."""
    values = {"mixed_precision": "no", "main_process_ip": "on", "gpu_ids": "0,1", "rdzv_conf": "a=1,b=2", "role": "1_0"}
    path = load.save(load.resolve(values), tmp_path / "c.yaml")
    assert {name: pyyaml.safe_load(path.read_text())[name] for name in values} == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num_process: 2", "line 1: there is no option `num_process`; did you mean `num_processes`?"),
        ("a: {b: 1}\nnum_machine: 1", "line 2: .*did you mean `num_machines`"),
        ("fsdp_confg:\n  fsdp_version: 2", "line 1: .*did you mean `fsdp_config`"),
        ("fsdp_config:\n  fsdp_versoin: 2", "line 2: there is no option `fsdp_versoin` in `fsdp_config`; did you mean"),
        ("fsdp_version: 2", "line 1: .*belongs into the section `fsdp_config`"),
        ("hello: 1", "line 1: there is no option `hello`; known are"),
        ("fsdp_config: 3", "line 1: `fsdp_config` is a section"),
    ],
)
def test_slips_are_named(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        load.read(write(tmp_path, text))


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join('*' + chr(97 + i) for _ in range(9))}]\n" for i in range(12)
)


@pytest.mark.parametrize(
    ("data", "line", "says"),
    [
        (BOMB, 1, "anchors"),
        ("num_processes: 2\nnum_processes: 3", 2, "`num_processes` is there twice"),
        ("cpu: !!python/object/apply:os.system ['echo hi']", 1, "tags have no use"),
        ("mixed_precision: no\nnum_processes: " + "9" * 5000, 2, "5000 digits"),
        ("num_processes: 99999999999999", 1, "whole number"),
        ("num_processes: two", 1, "whole number"),
        ("num_processes: [1]", 1, "whole number"),
        ("num_processes: 1.5", 1, "whole number"),
        ("num_processes: 0", 1, "1 or more"),
        ("machine_rank: -1", 1, "0 for the first"),
        ("num_machines: 1\nmixed_precision: fp7", 2, "Did you mean"),
        ("timeout: .nan", 1, "positive number"),
        ("use_cpu: {a: b}", 1, "True or False"),
        ("tpu_vm: [1, 2]", 1, "list of texts"),
        ("- a\n- b", 1, "list"),
        ("just text", 1, "text"),
        ("1: 2", 1, "not a word"),
        ("a: [1, 2\nb: 3", 2, "not YAML"),
        ("a:\tb:\n\t- c", 1, "not YAML"),
        ("x: " + "[" * 500 + "]" * 500, 1, "deep"),
        ("other:\n" + "".join(f"  k{i}: 1\n" for i in range(20_000)), 5000, "entries"),
        (b"\x7fELF\x00\x01\x02\xff\xfe", 1, "UTF-8"),
        (b"ok: 1\n\xff\xfe\x00", 2, "UTF-8"),
        ("ok: {}\nbad: \x00", 2, "not allowed"),
        ("x" * 300_000, 1, "larger than"),
    ],
)
def test_a_broken_or_hostile_file_gives_one_error_with_file_and_line(tmp_path, data, line, says):
    path = tmp_path / "bad.yaml"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    began = time.monotonic()
    with pytest.raises(ConfigError, match=says) as caught:
        load.read(path)
    assert time.monotonic() - began < 5
    assert re.search(rf"{re.escape(str(path))}, line {line}\b", str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count(str(path)) == 1
    assert len(str(caught.value)) < 2500


def test_a_missing_or_unreadable_file(tmp_path):
    with pytest.raises(ConfigError, match=r"There is no configuration .*config_panel"):
        load.read(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        reader.read(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        load.save(load.resolve({}), write(tmp_path, "", "file") / "below.yaml")


def test_an_empty_file_is_the_defaults(tmp_path):
    assert load.read(write(tmp_path, "# nothing\n")).named() == {}


def test_where_the_default_lies(tmp_path, monkeypatch):
    for name in ("HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.default() == tmp_path / ".cache/huggingface/notebook_accel/default_config.yaml"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert paths.default() == tmp_path / "x/huggingface/notebook_accel/default_config.yaml"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert paths.default() == tmp_path / "hf/notebook_accel/default_config.yaml"
    assert (paths.of_accelerate(), load.saved()) == (None, None)
    load.save(load.resolve({"num_processes": 3}))
    assert load.from_any().num_processes == 3
    (tmp_path / "hf/accelerate").mkdir()
    theirs = write(tmp_path / "hf/accelerate", "num_processes: 2\n", "default_config.yaml")
    assert paths.of_accelerate() == theirs


def test_precedence_file_environment_call(tmp_path, monkeypatch):
    path = write(tmp_path, "mixed_precision: bf16\nuse_cpu: true\nnum_processes: 2\n")
    config = load.resolve({}, load.from_any(path))
    assert (config.mixed_precision, str(config.source("mixed_precision"))) == ("bf16", f"{path}, line 1")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    config = load.resolve({"num_processes": 4}, load.from_any(str(path)))
    assert (config.mixed_precision, config.source("mixed_precision").kind) == ("no", "environment")
    assert (config.num_processes, config.source("num_processes").kind) == (4, "call")
    assert (config.cpu, config.source("cpu").kind) == (True, "file")
    table = load.explain(config)
    assert all(text in table for text in ("line 2", "ACCELERATE_MIXED_PRECISION", "the call"))


def test_from_any(tmp_path):
    class Panel:
        config = load.resolve({"num_processes": 2})

    assert load.from_any(Panel()).num_processes == 2
    assert load.from_any({"num_processes": 5}).num_processes == 5
    with pytest.raises(ConfigError, match="`config` is a int"):
        load.from_any(3)
    with pytest.raises(ConfigError, match="Did you mean `num_processes`"):
        load.from_any({"num_proceses": 3})


def test_a_kind_that_the_other_options_imply_does_not_outlive_them(tmp_path):
    path = write(tmp_path, "distributed_type: NO\nnum_processes: 1\nuse_cpu: true\n")
    config = load.resolve({"num_processes": 3}, load.read(path))
    assert config.distributed_type is None
    assert "distributed_type: MULTI_CPU" in load.text(config, path)


def test_secrets_are_not_shown():
    config = load.resolve({"tpu_env": ("HF_TOKEN=abc", "A=1"), "additional_args": {"secret_key": "abc", "x": 1}})
    assert "abc" not in load.explain(config)
    assert "A=1" in load.explain(config)
