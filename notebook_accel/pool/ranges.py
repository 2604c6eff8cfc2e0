"""Ranks in words: "rank 1", "ranks 0, 2", "ranks 0–6"."""

from __future__ import annotations

from collections.abc import Collection


def words(ranks: Collection[int]) -> str:
    """The ranks, for the middle of a sentence."""
    numbers = sorted(ranks)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]}–{numbers[-1]}"
    return "ranks " + ", ".join(map(str, numbers))


def sentence_start(ranks: Collection[int]) -> str:
    """The ranks, for the start of a sentence."""
    return words(ranks).capitalize()
