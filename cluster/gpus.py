"""Which GPU a job sees. CUDA reads CUDA_VISIBLE_DEVICES, a mask that the host may have set before us. Knows no GPU library."""

from __future__ import annotations

from collections.abc import Sequence

VARIABLE = "CUDA_VISIBLE_DEVICES"


def behind_mask(ids: Sequence[str], mask: str | None) -> tuple[str, ...]:
    """Return the devices that stand behind ids, as CUDA counts: under the mask "3,5" the GPUs 0 and 1 are 3 and 5.

    Raises ValueError for an id that the mask hides.
    """
    if mask is None:
        return tuple(ids)
    visible = [device.strip() for device in mask.split(",") if device.strip()]
    hidden = [one for one in ids if one not in visible and not (one.isdigit() and int(one) < len(visible))]
    if hidden:
        raise ValueError(
            f"--gpu {','.join(hidden)} is hidden by {VARIABLE}={mask!r}, which leaves {len(visible)} "
            f"GPU{'s' * (len(visible) != 1)}, counted from 0: offer those, or change the variable."
        )
    return tuple(visible[int(one)] if one.isdigit() and int(one) < len(visible) else one for one in ids)
