"""`accelerate.utils`: where each name is; a dot before the place says that it is one of the modules here."""

from notebook_accel._accelerate_paths._names import table as _table

__getattr__, __dir__ = _table(
    __name__,
    {
        ".ao": "convert_model_to_fp8_ao filter_first_and_last_linear_layers has_ao_layers",
        ".bnb": "has_4bit_bnb_layers load_and_quantize_model",
        ".constants": (
            "MITA_PROFILING_AVAILABLE_PYTORCH_VERSION MODEL_NAME OPTIMIZER_NAME RNG_STATE_NAME SAFE_MODEL_NAME "
            "SAFE_WEIGHTS_INDEX_NAME SAFE_WEIGHTS_NAME SAFE_WEIGHTS_PATTERN_NAME SAMPLER_NAME SCALER_NAME "
            "SCHEDULER_NAME WEIGHTS_INDEX_NAME WEIGHTS_NAME WEIGHTS_PATTERN_NAME "
            "PROFILE_PATTERN_NAME TORCH_DISTRIBUTED_OPERATION_TYPES "
            "XPU_PROFILING_AVAILABLE_PYTORCH_VERSION"
        ),
        ".dataclasses": (
            "AORecipeKwargs AutocastKwargs BnbQuantizationConfig ComputeEnvironment CustomDtype "
            "DDPCommunicationHookType DataLoaderConfiguration DistributedDataParallelKwargs DistributedType "
            "DynamoBackend FP8RecipeKwargs GradScalerKwargs GradientAccumulationPlugin InitProcessGroupKwargs "
            "KwargsHandler LoggerType MSAMPRecipeKwargs PrecisionType ProfileKwargs ProjectConfiguration "
            "RNGType SageMakerDistributedType "
            "TERecipeKwargs TensorInformation TorchDynamoPlugin"
        ),
        ".deepspeed": "DummyOptim DummyScheduler",
        ".environment": (
            "are_libraries_initialized check_cuda_fp8_capability check_cuda_p2p_ib_support clear_environment "
            "convert_dict_to_env_variables get_cpu_distributed_information get_current_device_type get_gpu_info "
            "get_int_from_env parse_choice_from_env parse_flag_from_env patch_environment "
            "purge_accelerate_environment set_numa_affinity str_to_bool"
        ),
        ".fsdp_utils": "merge_fsdp_weights",
        ".imports": (
            "is_4bit_bnb_available is_8bit_bnb_available is_aim_available is_amdsmi_available is_bf16_available "
            "is_bitsandbytes_multi_backend_available is_bnb_available is_boto3_available is_clearml_available "
            "is_comet_ml_available is_cuda_available is_datasets_available is_deepspeed_available "
            "is_dvclive_available is_fp16_available is_fp8_available is_habana_gaudi1 is_hpu_available "
            "is_import_timer_available is_lomo_available is_matplotlib_available is_megatron_lm_available "
            "is_mlflow_available is_mlu_available is_mps_available is_msamp_available is_musa_available "
            "is_neuron_available is_npu_available is_pandas_available is_peft_available is_pippy_available "
            "is_pynvml_available is_pytest_available is_rich_available is_rocm_available is_sagemaker_available "
            "is_schedulefree_available is_sdaa_available is_swanlab_available is_tensorboard_available "
            "is_timm_available is_torch_xla_available is_torchao_available is_torchdata_available "
            "is_torchdata_stateful_dataloader_available is_torchvision_available is_trackio_available "
            "is_transformer_engine_available is_transformer_engine_mxfp8_available is_transformers_available "
            "is_triton_available is_wandb_available is_weights_only_available is_xccl_available is_xpu_available "
            "torchao_required"
        ),
        ".memory": "find_executable_batch_size release_memory",
        ".modeling": (
            "align_module_device calculate_maximum_sizes check_device_map check_tied_parameters_in_config "
            "check_tied_parameters_on_same_device compute_module_sizes convert_file_size_to_int "
            "dtype_byte_size find_tied_parameters get_balanced_memory get_grad_scaler get_max_layer_size "
            "get_max_memory get_mixed_precision_context_manager has_offloaded_params id_tensor_storage "
            "infer_auto_device_map is_peft_model load_checkpoint_in_model load_offloaded_weights "
            "load_state_dict named_module_tensors retie_parameters set_module_tensor_to_device"
        ),
        ".offload": (
            "OffloadedWeightsLoader PrefixedDataset extract_submodules_state_dict load_offloaded_weight "
            "offload_state_dict offload_weight save_offload_index"
        ),
        ".operations": (
            "CannotPadNestedTensorWarning broadcast broadcast_object_list concatenate convert_outputs_to_fp32 "
            "convert_to_fp32 copy_tensor_to_devices find_batch_size find_device gather gather_object "
            "get_data_structure honor_type ignorant_find_batch_size initialize_tensors is_namedtuple "
            "is_tensor_information is_torch_tensor listify pad_across_processes pad_input_tensors "
            "recursively_apply reduce send_to_device slice_tensors"
        ),
        ".other": (
            "check_os_kernel clean_state_dict_for_safetensors load save "
            "compile_regions convert_bytes extract_model_from_parallel get_model_tp_size "
            "get_module_children_bottom_up get_pretty_name has_compiled_regions is_compiled_module "
            "is_port_in_use merge_dicts model_has_dtensor recursive_getattr wait_for_everyone"
        ),
        ".random": "set_seed synchronize_rng_state synchronize_rng_states",
        ".tqdm": "tqdm",
        ".transformer_engine": "has_transformer_engine_layers",
        ".versions": "compare_versions is_torch_version",
        "notebook_accel.config.basic": "write_basic_config",
    },
)
