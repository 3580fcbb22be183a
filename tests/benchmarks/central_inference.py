"""Central inference against a network for each actor: 32 callers ask one batched server, or each runs its own copy.

python tests/benchmarks/central_inference.py [--seconds S]     prints a table and one JSON line: actions a second

The callers are processes; each keeps two calls under way, as an actor with two groups of environments does. Both sides
have the same processors: the server has a thread of torch for each, a copy has one. Both have the network of the Nature paper
on DQN (Mnih et al. 2015), and observations of shape (4, 84, 84) in bytes.
"""

from __future__ import annotations

import json
import os
import time

import click
import numpy as np

import parl_lite

_SHAPE = (4, 84, 84)
_IN_FLIGHT = 2
_N_CORES = len(os.sched_getaffinity(0))
_SIZES = (1, 2, 4, 8, 16, 32, 64)


def make_policy():
    """Return the Nature network as a policy: obs (n, 4, 84, 84) bytes to n of 18 actions."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(4, 32, 8, stride=4), nn.ReLU()),  # (n, 32, 20, 20)
        *(nn.Conv2d(32, 64, 4, stride=2), nn.ReLU()),  # (n, 64, 9, 9)
        *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten()),  # (n, 3136)
        *(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 18)),
    )

    @torch.inference_mode()
    def act(obs):
        return network(torch.from_numpy(obs).float() / 255).argmax(1).numpy()

    return act


def make_server(size: int):
    """Return the class of a server whose batches have up to `size` calls."""

    @parl_lite.remote_class(n_cpu=_N_CORES)
    class Server:
        def __init__(self):
            self.act_on = make_policy()
            self.sizes = []

        @parl_lite.batched(max_size=size, timeout=0.002)
        def act(self, obs):
            self.sizes.append(len(obs))
            return self.act_on(obs)

    return Server


@parl_lite.remote_class
class Caller:
    """Wants actions for the observations of an environment that takes no time."""

    def __init__(self, seed: int):
        self.obs = np.random.default_rng(seed).integers(0, 256, _SHAPE).astype(np.uint8)

    def ask(self, server, until: float) -> int:
        """Return how many actions a server gave until a time of the clock."""
        futures = [server.futures.act(self.obs) for _ in range(_IN_FLIGHT)]
        n = 0
        while time.time() < until:
            futures.pop(0).result()
            futures.append(server.futures.act(self.obs))
            n += 1
        for future in futures:
            future.result()
        return n

    def prepare(self):
        """Make the own copy of the network."""
        import torch

        torch.set_num_threads(1)
        self.act_on = make_policy()
        self.act_on(self.obs[None])

    def act(self, until: float) -> int:
        """Return how many actions the own copy gave until a time of the clock."""
        n = 0
        while time.time() < until:
            self.act_on(self.obs[None])
            n += 1
        return n


@click.command()
@click.option("--seconds", default=2.0, help="Seconds for each row.")
@click.option("--callers", "n_callers", default=32, help="How many processes want actions.")
def main(seconds: float, n_callers: int) -> None:
    """Measure and print."""
    parl_lite.connect(n_cpu=n_callers + _N_CORES, log_to_driver=False)
    callers = [Caller(seed) for seed in range(n_callers)]

    def rate(start) -> float:
        until = time.time() + seconds
        return sum(parl_lite.get([start(caller, until) for caller in callers])) / seconds

    central, mean_size = {}, {}
    for size in _SIZES:
        server = make_server(size)()
        server.act(np.zeros(_SHAPE, np.uint8))
        server.sizes = []
        central[size] = rate(lambda caller, until, server=server: caller.futures.ask(server, until))
        mean_size[size] = float(np.mean(server.sizes))
        server.destroy()
    parl_lite.get([caller.futures.prepare() for caller in callers])
    local = rate(lambda caller, until: caller.futures.act(until))
    parl_lite.disconnect()
    _report(n_callers, central, mean_size, local)


def _report(n_callers: int, central: dict[int, float], mean_size: dict[int, float], local: float) -> None:
    print(f"{n_callers} callers{'':14}{'mean batch':>12}{'actions/s':>12}{'to local':>10}")
    print(f"{'local copies':24}{1:12.1f}{local:12.0f}{1:10.2f}")
    for size, rate in central.items():
        print(f"{f'one server, up to {size}':24}{mean_size[size]:12.1f}{rate:12.0f}{rate / local:10.2f}")
    rates = {str(size): round(rate) for size, rate in central.items()}
    print(json.dumps({"benchmark": "central_inference", "callers": n_callers, "local": round(local), "central": rates}))


if __name__ == "__main__":
    main()
