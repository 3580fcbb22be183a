"""The counters on a running cluster: python examples/cluster.py HOST:PORT

On this machine     parl-lite start                   (prints the address)
On another one      parl-lite connect HOST:8010       (as many as you like)
"""

import collections
import os
import socket
import sys

import parl_lite as parl


@parl.remote_class
class Counter:
    def count(self, steps):
        total = 0
        for _ in range(steps):
            total += 1
        return total, socket.gethostname(), os.getppid()


def main(address):
    parl.connect(address)
    info = parl.cluster_info()
    print(f"{len(info['workers'])} workers, {info['free_cpu']} of {info['n_cpu']} CPUs free")
    counters = [Counter() for _ in range(info["free_cpu"])]
    results = parl.get([counter.futures.count(1_000_000) for counter in counters])
    for (host, worker), n in collections.Counter((host, worker) for _, host, worker in results).items():
        print(f"{n} counters ran on {host} (worker {worker})")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
