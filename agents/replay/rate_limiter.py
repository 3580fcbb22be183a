"""How far sampling may run ahead of inserting, and inserting ahead of sampling. Pure: counts in, yes or no out.

As the SampleToInsertRatio of Reverb (Cassirer et al. 2021): with surplus = inserted * samples_per_insert - sampled,

    samples wait while   surplus - n < samples_per_insert * min_size - error_buffer, or fewer than min_size are there
    inserts wait while   surplus + n * samples_per_insert > samples_per_insert * min_size + error_buffer

Until min_size items are there, inserts never wait. The band is kept wide enough for the largest insert and the largest
sample seen together: in a narrower one both sides could wait for each other for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from parl_lite.errors import ParlError


@dataclass
class RateLimiter:
    """Counts items inserted and sampled."""

    samples_per_insert: float | None = None
    """How often an item is sampled on average; None: as often as learners like, and inserts never wait."""
    min_size: int = 1
    """Items that must be there before the first is sampled."""
    error_buffer: float | None = None
    """How far the surplus may be off on either side, in samples; without, a tenth of samples_per_insert * min_size."""
    inserted: int = 0
    sampled: int = 0
    largest_insert: int = 1
    largest_sample: int = 1

    def __post_init__(self) -> None:
        """Raise ParlError for settings that make no sense."""
        ratio = self.samples_per_insert
        if ratio is not None and not 0 < ratio < float("inf"):
            raise ParlError(f"samples_per_insert is {ratio}: it must be above 0, or None for no limit")
        if self.min_size < 1:
            raise ParlError(f"min_size is {self.min_size}: it must be at least 1")
        if self.error_buffer is None:
            self.error_buffer = 0.1 * (ratio or 0.0) * self.min_size
        if not self.error_buffer >= 0:
            raise ParlError(f"error_buffer is {self.error_buffer}: it must be 0 or more samples")

    @property
    def surplus(self) -> float:
        """Samples that the inserts so far make up for and that were not taken."""
        return self.inserted * (self.samples_per_insert or 0.0) - self.sampled

    @property
    def band(self) -> tuple[float, float]:
        """The least and the highest surplus that are allowed."""
        ratio, slack = self.samples_per_insert or 0.0, self.error_buffer or 0.0
        middle = ratio * self.min_size
        return middle - slack, max(middle + slack, middle - slack + ratio * self.largest_insert + self.largest_sample)

    def may_insert(self, n: int, size: int) -> bool:
        """Return whether `n` items may be inserted into a buffer that has `size`."""
        self.largest_insert = max(self.largest_insert, n)
        if self.samples_per_insert is None or size < self.min_size:
            return True
        return self.surplus + n * self.samples_per_insert <= self.band[1]

    def may_sample(self, n: int, size: int) -> bool:
        """Return whether `n` items may be sampled from a buffer that has `size`."""
        self.largest_sample = max(self.largest_sample, n)
        if size < self.min_size:
            return False
        return self.samples_per_insert is None or self.surplus - n >= self.band[0]
