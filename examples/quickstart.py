"""Five counters in five processes: python examples/quickstart.py"""

import parl_lite as parl


@parl.remote_class
class Counter:
    def __init__(self, start):
        self.n = start

    def count(self, steps):
        for _ in range(steps):
            self.n += 1  # free of the driver's GIL: this runs in a process of its own
        return self.n


if __name__ == "__main__":
    parl.connect(n_cpu=5)  # a private cluster on this machine, gone when the script ends
    counters = [Counter(start=i) for i in range(5)]
    futures = [counter.futures.count(1_000_000) for counter in counters]
    for future in parl.as_completed(futures):
        print(future.result())
