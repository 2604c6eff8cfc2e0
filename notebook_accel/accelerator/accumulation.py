"""Which micro-steps end in an optimizer step."""

from __future__ import annotations

from notebook_accel.data.progress import Progress
from notebook_accel.errors import ConfigError


class Accumulation:
    """Counts micro-steps; `sync_gradients` says whether the current one ends in an optimizer step."""

    def __init__(self, num_steps: int, progress: Progress) -> None:
        if not isinstance(num_steps, int) or isinstance(num_steps, bool) or num_steps < 1:
            raise ConfigError(f"`gradient_accumulation_steps={num_steps!r}` cannot be: use a whole number, 1 or more.")
        self.num_steps = num_steps
        self.progress = progress
        self.step = 0
        self.sync_gradients = True
        self.sync_with_dataloader = True

    def advance(self) -> None:
        """Begin a micro-step. The last batch of a loader always ends in an optimizer step."""
        if self.sync_with_dataloader and self.progress.at_end:
            self.step, self.sync_gradients = 0, True
            return
        self.step += 1
        self.sync_gradients = self.step % self.num_steps == 0
