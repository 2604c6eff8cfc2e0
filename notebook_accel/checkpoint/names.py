"""The names of the files of a checkpoint: the peer's, so that checkpoints move both ways."""

from __future__ import annotations

MODEL_NAME = "pytorch_model"
SAFE_MODEL_NAME = "model"
OPTIMIZER_NAME = "optimizer"
SCHEDULER_NAME = "scheduler"
SAMPLER_NAME = "sampler"
SCALER_NAME = "scaler.pt"
RNG_STATE_NAME = "random_states"
WEIGHTS_NAME = f"{MODEL_NAME}.bin"
WEIGHTS_INDEX_NAME = f"{WEIGHTS_NAME}.index.json"
WEIGHTS_PATTERN_NAME = "pytorch_model{suffix}.bin"
SAFE_WEIGHTS_NAME = f"{SAFE_MODEL_NAME}.safetensors"
SAFE_WEIGHTS_INDEX_NAME = f"{SAFE_WEIGHTS_NAME}.index.json"
SAFE_WEIGHTS_PATTERN_NAME = "model{suffix}.safetensors"

LOADER_NAME = "dl_state_dict"
CUSTOM_NAME = "custom_checkpoint"
# Ours: the peer does not look at files that it does not know.
MANIFEST_NAME = "notebook_accel.manifest.json"
LATE_NAME = "notebook_accel.rank_{}.json"
LATE_PATTERN = "notebook_accel.rank_*.json"
VALUES_NAME = "notebook_accel.values.json"
PLACES_NAME = "notebook_accel.loaders_{}.bin"


def numbered(name: str, number: int, ending: str) -> str:
    """The file of the object with this number: the first one has none in its name."""
    return f"{name}{f'_{number}' if number else ''}{ending}"
