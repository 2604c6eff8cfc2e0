"""Train a small denoising-diffusion model on scikit-learn's handwritten digits, and draw new ones.

    python examples/diffusion.py --train_num_steps 2000
    torchrun --nproc_per_node 2 examples/diffusion.py --cpu
    python examples/diffusion.py --resume

Every `save_and_sample_every` steps it writes a checkpoint with all that the run needs, the averaged copy of the model
too, and a grid of samples, `samples_<step>.png`. With `--resume` it goes on from the newest checkpoint: what comes out
is what an uninterrupted run gives.

The model is that of Ho et al., "Denoising Diffusion Probabilistic Models" (2020), with the cosine schedule of Nichol
and Dhariwal (2021), much smaller.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from matplotlib.image import imsave
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

from notebook_accel import Accelerator, ProjectConfiguration, set_seed
from notebook_accel.utils import GradientAccumulationPlugin

STEPS_OF_NOISE = 100
SIZE = 8


def load_images() -> torch.Tensor:
    """1,797 images, each 1×8×8 with values from -1 to 1."""
    images, _ = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).reshape(-1, 1, SIZE, SIZE) / 8 - 1


class Block(nn.Module):
    """Two convolutions around which the input goes on, told how noisy it is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.second = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.level = nn.Linear(width, width)

    def forward(self, images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        """`images` of `width` channels, `level` of `width` numbers for each."""
        inner = self.first(images) + self.level(level)[:, :, None, None]
        return images + self.second(inner)


class Denoiser(nn.Module):
    """Says which noise is in an image, given how much of it there is."""

    def __init__(self, width: int = 32, blocks: int = 3) -> None:
        super().__init__()
        self.width = width
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.level = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.leave = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, images: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Noise of the shape of `images` (N×1×8×8); `times` are N numbers from 0 to `STEPS_OF_NOISE` - 1."""
        half = self.width // 2
        frequencies = torch.exp(torch.arange(half, device=images.device) * (-math.log(1000.0) / half))
        angles = times[:, None].float() * frequencies
        level = self.level(torch.cat([angles.sin(), angles.cos()], dim=1))
        inner = self.enter(images)
        for block in self.blocks:
            inner = block(inner, level)
        return self.leave(inner)


class Diffusion:
    """How noise is added in `STEPS_OF_NOISE` steps, and taken away again."""

    def __init__(self, device: torch.device) -> None:
        times = torch.arange(STEPS_OF_NOISE + 1, dtype=torch.float64) / STEPS_OF_NOISE
        left = torch.cos((times + 0.008) / 1.008 * math.pi / 2) ** 2
        self.betas = (1 - left[1:] / left[:-1]).clamp(max=0.999).float().to(device)
        self.left = torch.cumprod(1 - self.betas, dim=0)  # how much of the image is left

    def loss(self, model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        """How wrong the model is about the noise in `images`, at times drawn at random."""
        times = torch.randint(0, STEPS_OF_NOISE, (len(images),), device=images.device)
        noise = torch.randn_like(images)
        left = self.left[times][:, None, None, None]
        return nn.functional.mse_loss(model(left.sqrt() * images + (1 - left).sqrt() * noise, times), noise)

    @torch.no_grad()
    def sample(self, model: nn.Module, count: int, generator: torch.Generator) -> torch.Tensor:
        """`count` new images, 1×8×8 with values from -1 to 1."""
        device = self.betas.device

        def noise() -> torch.Tensor:
            return torch.randn(count, 1, SIZE, SIZE, generator=generator).to(device)

        images = noise()
        for time in reversed(range(STEPS_OF_NOISE)):
            beta, left = self.betas[time], self.left[time]
            guess = model(images, torch.full((count,), time, device=device))
            images = (images - beta / (1 - left).sqrt() * guess) / (1 - beta).sqrt()
            if time:
                images = images + beta.sqrt() * noise()
        return images.clamp(-1, 1)


class Average:
    """A copy of a model whose weights follow it slowly. It has a state, so it can be registered for checkpoints."""

    def __init__(self, model: nn.Module, decay: float, device: torch.device) -> None:
        self.model = Denoiser().to(device)
        self.model.load_state_dict(model.state_dict())
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Follow `model` by a part of 1 - `decay`."""
        for own, new in zip(self.model.parameters(), model.parameters()):
            own.lerp_(new, 1 - self.decay)

    def state_dict(self) -> dict[str, Any]:
        """The weights of the copy."""
        return self.model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.model.load_state_dict(state)


class Trainer:
    """One run, from its flags."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self.flags = flags
        project = ProjectConfiguration(flags.results_folder, automatic_checkpoint_naming=True, total_limit=3)
        every = flags.gradient_accumulate_every
        # An epoch that ends in the middle of a step is no reason to make it shorter.
        plugin = GradientAccumulationPlugin(num_steps=every, sync_with_dataloader=False)
        self.accelerator = Accelerator(cpu=flags.cpu, project_config=project, gradient_accumulation_plugin=plugin)
        set_seed(flags.seed)
        model = Denoiser()
        optimizer = torch.optim.Adam(model.parameters(), lr=flags.train_lr, betas=tuple(flags.adam_betas))
        loader: Any = DataLoader(load_images(), flags.train_batch_size, shuffle=True)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.average = Average(model, flags.ema_decay, self.accelerator.device)
        self.accelerator.register_for_checkpointing(self.average)
        self.diffusion = Diffusion(self.accelerator.device)
        set_seed(flags.seed, device_specific=True)  # each process draws noise of its own
        self.accelerator.values["step"] = 0

    def batches(self) -> Iterator[torch.Tensor]:
        """Images, epoch after epoch; the first one from where the checkpoint was."""
        yield from self.accelerator.rest_of_epoch(self.loader)
        while True:
            yield from self.loader

    def run(self) -> None:
        """Train to the last step."""
        accelerator, flags = self.accelerator, self.flags
        if flags.resume:
            accelerator.load_state()
            accelerator.print(f"going on after step {accelerator.values['step']}")
        loss_of_step = 0.0
        for images in self.batches() if accelerator.values["step"] < flags.train_num_steps else ():
            with accelerator.accumulate(self.model):
                loss = self.diffusion.loss(self.model, images)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(self.model.parameters(), flags.max_grad_norm)
                self.optimizer.step()
                self.optimizer.zero_grad()
            loss_of_step += loss.item() / flags.gradient_accumulate_every
            if accelerator.sync_gradients:
                self.after_step(loss_of_step)
                loss_of_step = 0.0
                if accelerator.values["step"] >= flags.train_num_steps:
                    break
        accelerator.end_training()

    def after_step(self, loss: float) -> None:
        """Count, average, save and draw."""
        accelerator, flags = self.accelerator, self.flags
        step = accelerator.values["step"] = accelerator.values["step"] + 1
        if step % flags.ema_update_every == 0:
            self.average.update(accelerator.unwrap_model(self.model))
        if step % flags.save_and_sample_every == 0 or step == flags.train_num_steps:
            accelerator.save_state()
            if accelerator.is_main_process:
                self.draw(step)
            accelerator.print(f"step {step}: loss {loss:.4f}")

    def draw(self, step: int) -> None:
        """Write a square of samples of the averaged model; they do not change what the training draws."""
        generator = torch.Generator().manual_seed(self.flags.seed + step)
        images = self.diffusion.sample(self.average.model, self.flags.num_samples, generator).cpu()
        side = math.isqrt(self.flags.num_samples)
        grid = images.reshape(side, side, SIZE, SIZE).permute(0, 2, 1, 3).reshape(side * SIZE, side * SIZE)
        path = Path(self.flags.results_folder) / f"samples_{step}.png"
        imsave(path, grid.repeat_interleave(4, 0).repeat_interleave(4, 1).numpy(), cmap="gray", vmin=-1, vmax=1)


def square(text: str) -> int:
    """A whole number that is a square. Raises argparse's error, with the two that are nearest, for another."""
    number = int(text)
    root = math.isqrt(max(number, 0))
    if number < 1 or root * root != number:
        near = [item * item for item in (root, root + 1) if item]
        raise argparse.ArgumentTypeError(f"{number} samples make no square grid; use {' or '.join(map(str, near))}")
    return number


def read_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    """The flags of a run."""
    parser = argparse.ArgumentParser(description="Train a small diffusion model on handwritten digits.")
    parser.add_argument("--train_batch_size", type=int, default=64, help="of each process")
    parser.add_argument("--gradient_accumulate_every", type=int, default=1, help="batches for one step")
    parser.add_argument("--train_lr", type=float, default=1e-3)
    parser.add_argument("--train_num_steps", type=int, default=2000)
    parser.add_argument("--ema_update_every", type=int, default=5)
    parser.add_argument("--ema_decay", type=float, default=0.98)
    parser.add_argument("--adam_betas", type=float, nargs=2, default=(0.9, 0.99))
    parser.add_argument("--save_and_sample_every", type=int, default=500)
    parser.add_argument("--num_samples", type=square, default=25, help="of each picture: a square number")
    parser.add_argument("--max_grad_norm", type=float, default=1.0)
    parser.add_argument("--results_folder", default="diffusion_results")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    Trainer(read_flags()).run()
