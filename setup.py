"""Packaging: the top-level folders cluster/ and agents/ are installed as parl_lite.cluster and parl_lite.agents."""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
VERSION = (HERE / "parl_lite" / "version.py").read_text().split('"')[-2]

ATARI = ["ale-py>=0.11"]
BOX2D = ["box2d>=2.3.10", "pygame>=2.1.3"]
MUJOCO = ["mujoco>=3", "imageio>=2.14"]
TENSORBOARD = ["tensorboardX>=2.6"]
VIDEO = ["moviepy>=2"]
DEV = [
    *ATARI,
    *BOX2D,
    *MUJOCO,
    *TENSORBOARD,
    "hypothesis>=6",
    "matplotlib>=3.7",
    "mypy>=1.10",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "ruff>=0.6",
]


def packages(folder: str, name: str) -> dict[str, str]:
    """Return {import name: folder} of a top-level folder and its sub-packages."""
    found = {name: folder}
    for init in sorted((HERE / folder).glob("*/**/__init__.py")):
        inner = init.parent.relative_to(HERE / folder)
        found[".".join([name, *inner.parts])] = str(Path(folder) / inner)
    return found


PACKAGE_DIR = {**packages("cluster", "parl_lite.cluster"), **packages("agents", "parl_lite.agents")}

setup(
    name="parl_lite",
    version=VERSION,
    description="A ZeroMQ actor-learner cluster framework for reinforcement learning in PyTorch",
    long_description=(HERE / "README.md").read_text() if (HERE / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=["parl_lite", "parl_lite.algorithms", "parl_lite.utils", *PACKAGE_DIR],
    package_dir={"parl_lite": "parl_lite", **PACKAGE_DIR},
    package_data={"parl_lite": ["py.typed"]},
    install_requires=[
        "click>=8.1",
        "cloudpickle>=3",
        "gymnasium>=1.1",
        "numpy>=1.26",
        "psutil>=5.9",
        "pyarrow>=18",
        "pyzmq>=26",
        "rich>=13",
        "threadpoolctl>=3",
        "torch>=2.4",
    ],
    extras_require={
        "atari": ATARI,
        "box2d": BOX2D,
        "mujoco": MUJOCO,
        "tensorboard": TENSORBOARD,
        "video": VIDEO,
        "plot": ["matplotlib>=3.7"],
        "dev": DEV,
    },
    entry_points={"console_scripts": ["parl-lite = parl_lite.cluster.cli:main"]},
)
