"""What a value costs to encode and decode: the payload codec beside pickle 5, pyarrow and a bare copy of the bytes.

    python tests/benchmarks/codec.py [--seconds 0.2]

Prints microseconds (the best of several rounds, taken in turns so that a noisy machine is noisy for all) and how many
times slower the others are, then all of it as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from parl_lite.payload import Decoder, Encoder
from parl_lite.rollout import Rollout

ROUNDS = 7
OTHERS = ("pickle", "pyarrow", "copy")


def make_values() -> dict[str, Any]:
    """Return the values by name."""
    generator = np.random.default_rng(0)
    six = {
        "obs": generator.normal(size=(32, 4)).astype(np.float32),
        "action": np.arange(32),
        "reward": np.zeros(32, np.float32),
        "terminated": np.zeros(32, bool),
        "logp": np.zeros(32, np.float32),
        "value": np.zeros(32, np.float32),
    }
    frames = {"obs": generator.integers(0, 255, (128, 4, 32, 32), np.uint8), "reward": np.zeros(128, np.float32)}
    return {
        "None": None,
        "int": 5,
        "call of scalars": ((1, 2.0, "x"), {}),
        "call of an observation": ((np.zeros(4, np.float32),), {}),
        "step": (np.zeros(4, np.float32), 1.0, False, False, {}),
        "six columns": six,
        "rollout of six columns": Rollout(six, {"policy_version": 3}),
        "rollout of 0.5 MB": Rollout(frames, {"policy_version": 3}),
        "weights of 8 MB": {f"layer{i}": generator.normal(size=(512, 512)).astype(np.float32) for i in range(8)},
        "array and text": {"obs": np.zeros(4), "name": "x"},
    }


def ways_to_encode(value: Any) -> dict[str, Callable[[], Any]]:
    """Return the functions to time, by name; ours is "payload"."""
    encoder, decoder, frame = Encoder(), Decoder(), b""
    for _ in range(2):
        frame = encoder.encode(value)
        decoder.decode(frame)
    received = bytearray(frame)  # a ZeroMQ frame is writable
    pickled = pickle.dumps(value, 5)
    ways = {
        "encode payload": lambda: encoder.encode(value),
        "encode pickle": lambda: pickle.dumps(value, 5),
        "encode copy": lambda: bytes(received),
        "decode payload": lambda: decoder.decode(received),
        "decode pickle": lambda: pickle.loads(pickled),
        "decode copy": lambda: bytearray(frame),
    }
    if type(value) is Rollout:
        message, schema = value.to_arrow().to_batches()[0].serialize(), value.to_arrow().schema
        ways["encode pyarrow"] = lambda: value.to_arrow().to_batches()[0].serialize()
        ways["decode pyarrow"] = lambda: Rollout.from_arrow(pa.ipc.read_record_batch(message, schema))
    return ways


def measure(ways: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return microseconds a call, the best of ROUNDS rounds of about `seconds` in all."""
    counts = {}
    for name, call in ways.items():
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(seconds / ROUNDS / (time.perf_counter() - start + 1e-7)))
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, call in ways.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / counts[name] * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each number (default 0.2)")
    seconds = parser.parse_args().seconds
    results = {}
    print(f"{'microseconds':24} {'payload':>9}", *(f"{other:>9} {'ratio':>6}" for other in OTHERS))
    for value_name, value in make_values().items():
        best = results[value_name] = measure(ways_to_encode(value), seconds)
        for direction in ("encode", "decode"):
            ours = best[f"{direction} payload"]
            cells = [f"{value_name if direction == 'encode' else '':17} {direction}", f"{ours:9.2f}"]
            for other in OTHERS:
                theirs = best.get(f"{direction} {other}")
                cells += [f"{'-':>9} {'-':>6}" if theirs is None else f"{theirs:9.2f} {theirs / ours:6.2f}"]
            print(" ".join(cells))
    print(json.dumps({"benchmark": "codec", "microseconds": results}))


if __name__ == "__main__":
    main()
