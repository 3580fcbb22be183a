"""What it means that a value came back as it was sent, for the tests of the payload."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from parl_lite.payload import Decoder, Encoder


def trip(value: Any, *, allow_pickle: bool = True) -> Any:
    """Return the value after its third trip over one connection: by then its schema is known."""
    encoder, decoder = Encoder(), Decoder(allow_pickle)
    for _ in range(3):
        received = decoder.decode(encoder.encode(value))
    return received


def assert_same(received: Any, sent: Any) -> None:
    """Assert equal type, dtype with byte order, shape, bits and order of keys; arrays writable and with own memory."""
    assert type(received) is type(sent)
    if isinstance(sent, np.ndarray):
        assert_same_array(received, sent)
    elif "torch" in sys.modules and isinstance(sent, sys.modules["torch"].Tensor):
        assert_same_tensor(received, sent)
    elif isinstance(sent, np.generic):
        assert received.dtype == sent.dtype and received.tobytes() == sent.tobytes()
    elif isinstance(sent, dict):
        assert list(received) == list(sent)
        for name in sent:
            assert_same(received[name], sent[name])
    elif isinstance(sent, list | tuple):
        assert len(received) == len(sent)
        for ours, theirs in zip(received, sent, strict=True):
            assert_same(ours, theirs)
    else:
        assert received == sent or (sent != sent and received != received)


def assert_same_array(received: np.ndarray, sent: np.ndarray) -> None:
    assert received.dtype == sent.dtype and received.dtype.byteorder == sent.dtype.byteorder
    assert received.shape == sent.shape
    assert received.flags.writeable and received.flags.aligned
    assert not np.shares_memory(received, sent)
    if sent.dtype.hasobject:
        assert received.tolist() == sent.tolist()
    else:
        assert received.tobytes() == sent.tobytes()


def assert_same_tensor(received: Any, sent: Any) -> None:
    torch = sys.modules["torch"]
    assert received.dtype == sent.dtype and received.shape == sent.shape
    assert received.requires_grad == sent.requires_grad and received.is_leaf
    numbers = [tensor.detach().contiguous().view(-1).view(torch.uint8) for tensor in (received, sent)]
    assert torch.equal(*numbers)
    assert sent.numel() == 0 or received.data_ptr() != sent.data_ptr()
