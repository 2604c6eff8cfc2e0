"""Options of set-ups beyond one machine of alike devices. Each class is one section; `RunConfig` has them all."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from notebook_accel.config.fields import Options, option
from notebook_accel.config.values import Count, Lower, Natural, Number, Text, Truths, Upper, Words

# Inductor, and the other names that torch.compile or its forerunners have had.
Backend = Annotated[
    Literal[
        "no",
        "eager",
        "aot_eager",
        "inductor",
        "aot_ts_nvfuser",
        "nvprims_nvfuser",
        "cudagraphs",
        "ofi",
        "fx2trt",
        "onnxrt",
        "tensorrt",
        "aot_torchxla_trace_once",
        "torhchxla_trace_once",
        "tvm",
    ],
    Lower,
]


class Compile(Options):
    """`torch.compile`."""

    dynamo_backend: Backend = option("no", "Backend of torch.compile; no: do not compile.", group="compile")
    dynamo_mode: Literal["default", "reduce-overhead", "max-autotune"] = option(
        "default", "What torch.compile optimises for.", group="compile", when="compiling"
    )
    dynamo_use_fullgraph: bool = option(False, "Fail where the graph breaks.", group="compile", when="compiling")
    dynamo_use_dynamic: bool = option(False, "Compile for changing shapes.", group="compile", when="compiling")
    dynamo_use_regional_compilation: bool = option(
        False, "Compile one repeated block and reuse it.", group="compile", when="compiling"
    )


class Fp8(Options):
    """Eight-bit floating point."""

    fp8_backend: Annotated[Literal["AO", "TE", "MSAMP"], Upper] | None = option(
        None, "Library for fp8: AO (torchao), TE (Transformer Engine) or MSAMP.", group="fp8", when="fp8"
    )
    fp8_use_autocast_during_eval: bool = option(False, "fp8 in evaluation too (TE).", group="fp8", when="fp8")
    fp8_margin: Natural = option(0, "Margin of the scaling factor (TE).", group="fp8", when="fp8")
    fp8_interval: Count = option(1, "Steps between new scaling factors (TE).", group="fp8", when="fp8")
    fp8_format: Annotated[Literal["HYBRID", "E4M3", "E5M2"], Upper] = option(
        "HYBRID", "Number format; HYBRID: E4M3 forward, E5M2 backward (TE).", group="fp8", when="fp8"
    )
    fp8_amax_history_len: Count = option(1024, "Length of the history of maxima (TE).", group="fp8", when="fp8")
    fp8_amax_compute_algo: Literal["max", "most_recent"] = option(
        "most_recent", "How a maximum is taken from the history (TE).", group="fp8", when="fp8"
    )
    fp8_override_linear_precision: Truths = option(
        (False, False, False), "Keep forward, input and weight gradients in higher precision (TE).", group="fp8"
    )
    fp8_opt_level: Annotated[Literal["O1", "O2"], Upper] = option(
        "O2", "What is kept in eight bits (MSAMP).", group="fp8", when="fp8"
    )
    fp8_enable_fsdp_float8_all_gather: bool = option(
        True, "Gather sharded weights in eight bits (AO).", group="fp8", when="fp8"
    )
    fp8_pad_inner_dim: bool = option(True, "Pad matrices to multiples of 16 (AO).", group="fp8", when="fp8")


class Parallelism(Options):
    """Sizes of the axes of the device mesh."""

    parallelism_config_dp_replicate_size: Count = option(1, "Copies of the model.", group="parallelism")
    parallelism_config_dp_shard_size: Count = option(1, "Ranks that one copy is sharded over.", group="parallelism")
    parallelism_config_tp_size: Count = option(1, "Ranks of tensor parallelism.", group="parallelism")
    parallelism_config_cp_size: Count = option(1, "Ranks that one sequence is split over.", group="parallelism")
    parallelism_config_cp_backend: Literal["torch"] = option(
        "torch", "Who does context parallelism.", group="parallelism"
    )
    parallelism_config_cp_comm_strategy: Literal["allgather", "alltoall"] = option(
        "allgather", "How keys and values go round in context parallelism.", group="parallelism"
    )
    parallelism_config_sp_size: Count = option(1, "Ranks of sequence parallelism.", group="parallelism")
    parallelism_config_sp_backend: Literal["deepspeed"] = option(
        "deepspeed", "Who does sequence parallelism.", group="parallelism"
    )
    parallelism_config_sp_seq_length: Count | None = option(None, "Length of all sequences.", group="parallelism")
    parallelism_config_sp_seq_length_is_variable: bool = option(
        True, "Whether sequences differ in length.", group="parallelism"
    )
    parallelism_config_sp_attn_implementation: Text = option(
        "sdpa", "Attention of sequence parallelism.", group="parallelism"
    )


class Fsdp(Options):
    """Fully sharded data parallel."""

    fsdp_version: Natural | None = option(None, "1, or 2 (fully_shard).", group="fsdp", ge=1, le=2)
    fsdp_sharding_strategy: Text = option("FULL_SHARD", "What is sharded (version 1).", group="fsdp")
    fsdp_reshard_after_forward: Text = option("true", "Free full weights after the forward pass.", group="fsdp")
    fsdp_offload_params: bool = option(False, "Keep weights and gradients on the CPU.", group="fsdp")
    fsdp_min_num_params: Natural = option(100_000_000, "Smallest unit of the size-based policy.", group="fsdp")
    fsdp_auto_wrap_policy: Text | None = option(
        None, "What becomes a unit: TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP.", group="fsdp"
    )
    fsdp_transformer_layer_cls_to_wrap: Text | None = option(
        None, "Names of the layer classes that become units, with commas.", group="fsdp"
    )
    fsdp_backward_prefetch: Text | None = option(None, "Fetch ahead in the backward pass (version 1).", group="fsdp")
    fsdp_forward_prefetch: bool = option(False, "Fetch ahead in the forward pass (version 1).", group="fsdp")
    fsdp_state_dict_type: Text | None = option(
        None, "How checkpoints are written: FULL_STATE_DICT or SHARDED_STATE_DICT.", group="fsdp"
    )
    fsdp_use_orig_params: bool = option(True, "Keep the model's own parameters (version 1).", group="fsdp")
    fsdp_cpu_ram_efficient_loading: bool = option(True, "Only one rank loads the weights.", group="fsdp")
    fsdp_sync_module_states: bool = option(True, "Rank 0 sends its weights to all (version 1).", group="fsdp")
    fsdp_activation_checkpointing: bool = option(False, "Recompute activations in the backward pass.", group="fsdp")
    fsdp_activation_checkpointing_offload: bool = option(False, "Keep checkpoints on the CPU.", group="fsdp")
    fsdp_ignored_modules: Text | None = option(None, "Modules that are not sharded (a pattern).", group="fsdp")


class DeepSpeed(Options):
    """DeepSpeed."""

    deepspeed_config_file: Text | None = option(None, "DeepSpeed's own JSON file, instead of these.", group="deepspeed")
    zero_stage: Natural | None = option(None, "ZeRO stage, 0 to 3.", group="deepspeed", ge=0, le=3)
    offload_optimizer_device: Text | None = option(None, "none, cpu or nvme.", group="deepspeed")
    offload_param_device: Text | None = option(None, "none, cpu or nvme.", group="deepspeed")
    offload_optimizer_nvme_path: Text | None = option(None, "Folder on the NVMe disk.", group="deepspeed")
    offload_param_nvme_path: Text | None = option(None, "Folder on the NVMe disk.", group="deepspeed")
    gradient_accumulation_steps: Count | None = option(None, "Batches for each step.", group="deepspeed")
    gradient_clipping: Number | None = option(None, "Largest norm of the gradients.", group="deepspeed")
    zero3_init_flag: bool | None = option(None, "Make weights sharded from the start.", group="deepspeed")
    zero3_save_16bit_model: bool | None = option(None, "Save gathered half-precision weights.", group="deepspeed")
    deepspeed_hostfile: Text | None = option(None, "List of machines.", group="deepspeed")
    deepspeed_exclusion_filter: Text | None = option(None, "Machines and devices to leave out.", group="deepspeed")
    deepspeed_inclusion_filter: Text | None = option(None, "Machines and devices to use.", group="deepspeed")
    deepspeed_multinode_launcher: Text | None = option(None, "pdsh, standard, openmpi or mvapich.", group="deepspeed")
    deepspeed_moe_layer_cls_names: Text | None = option(None, "Names of MoE layer classes.", group="deepspeed")


class Megatron(Options):
    """Megatron-LM."""

    megatron_lm_tp_degree: Count = option(1, "Ranks of tensor parallelism.", group="megatron")
    megatron_lm_pp_degree: Count = option(1, "Pipeline stages.", group="megatron")
    megatron_lm_num_micro_batches: Count | None = option(None, "Micro-batches of the pipeline.", group="megatron")
    megatron_lm_sequence_parallelism: bool | None = option(None, "Split sequences too.", group="megatron")
    megatron_lm_recompute_activations: bool | None = option(None, "Recompute activations.", group="megatron")
    megatron_lm_use_distributed_optimizer: bool | None = option(None, "Shard the optimizer.", group="megatron")
    megatron_lm_gradient_clipping: Number = option(1.0, "Largest norm of the gradients.", group="megatron")
    megatron_lm_use_custom_fsdp: bool = option(False, "Megatron's own FSDP.", group="megatron")
    megatron_lm_no_load_optim: bool = option(False, "Do not load the optimizer.", group="megatron")
    megatron_lm_no_save_optim: bool = option(False, "Do not save the optimizer.", group="megatron")
    megatron_lm_eod_mask_loss: bool = option(False, "No loss at ends of documents.", group="megatron")
    megatron_lm_optimizer_cpu_offload: bool = option(False, "Optimizer on the CPU.", group="megatron")
    megatron_lm_overlap_cpu_optimizer_d2h_h2d: bool = option(False, "Overlap its copies.", group="megatron")
    megatron_lm_use_precision_aware_optimizer: bool = option(False, "Optimizer in low precision.", group="megatron")
    megatron_lm_decoder_last_pipeline_num_layers: Count | None = option(
        None, "Layers of the last pipeline stage.", group="megatron"
    )
    megatron_lm_recompute_granularity: Text | None = option(None, "full or selective.", group="megatron")
    megatron_lm_recompute_method: Text | None = option(None, "uniform or block.", group="megatron")
    megatron_lm_recompute_num_layers: Count | None = option(None, "Layers to recompute.", group="megatron")
    megatron_lm_attention_backend: Text | None = option(None, "Attention implementation.", group="megatron")
    megatron_lm_attention_dropout: Number | None = option(None, "Dropout of attention.", group="megatron")
    megatron_lm_hidden_dropout: Number | None = option(None, "Dropout of hidden states.", group="megatron")
    megatron_lm_attention_softmax_in_fp32: bool | None = option(None, "Softmax in fp32.", group="megatron")
    megatron_lm_calculate_per_token_loss: bool | None = option(None, "Loss for each token.", group="megatron")
    megatron_lm_use_rotary_position_embeddings: bool | None = option(None, "Rotary positions.", group="megatron")
    megatron_lm_context_parallel_size: Count | None = option(None, "Ranks of context parallelism.", group="megatron")
    megatron_lm_expert_model_parallel_size: Count | None = option(None, "Ranks of the experts.", group="megatron")
    megatron_lm_expert_tensor_parallel_size: Count | None = option(None, "Ranks of one expert.", group="megatron")


class Mpi(Options):
    """MPI on CPUs."""

    mpirun_hostfile: Text | None = option(None, "Host file of mpirun.", group="mpi")


class Tpu(Options):
    """TPUs, through torch_xla."""

    downcast_bf16: bool = option(False, "On a TPU, double too becomes bf16.", group="tpu")
    tpu_name: Text | None = option(None, "Name of the TPU.", group="tpu")
    tpu_zone: Text | None = option(None, "Zone of the TPU.", group="tpu")
    tpu_use_cluster: bool = option(False, "Use a TPU pod.", group="tpu")
    tpu_use_sudo: bool = option(False, "Start with sudo on the pod.", group="tpu")
    tpu_vm: Words = option((), "Names of the pod's machines.", group="tpu")
    tpu_env: Words = option((), "Variables for the pod, each NAME=value.", group="tpu")
    commands: Words = option((), "Commands to run on the pod first.", group="tpu")
    command_file: Text | None = option(None, "File with such commands.", group="tpu")


class SageMaker(Options):
    """Amazon SageMaker."""

    ec2_instance_type: Text | None = option(None, "Type of the machines.", group="sagemaker")
    iam_role_name: Text | None = option(None, "IAM role that runs the job.", group="sagemaker")
    image_uri: Text | None = option(None, "Docker image.", group="sagemaker")
    profile: Text | None = option(None, "AWS profile.", group="sagemaker")
    region: Text | None = option(None, "AWS region.", group="sagemaker")
    base_job_name: Text | None = option(None, "Begin of the job's name.", group="sagemaker")
    pytorch_version: Text | None = option(None, "Version of PyTorch.", group="sagemaker")
    transformers_version: Text | None = option(None, "Version of transformers.", group="sagemaker")
    py_version: Text | None = option(None, "Version of Python.", group="sagemaker")
    sagemaker_inputs_file: Text | None = option(None, "File with the inputs.", group="sagemaker")
    sagemaker_metrics_file: Text | None = option(None, "File with the metrics.", group="sagemaker")
    additional_args: dict[str, Any] | None = option(None, "More for SageMaker's estimator.", group="sagemaker")
