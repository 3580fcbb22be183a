"""python -m parl_lite.cluster: the command line, where its script is not on the path."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="parl-lite")
