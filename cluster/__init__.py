"""The processes of a cluster: master, worker, zygote, job, and the command line. Knows parl_lite, never agents or torch."""

if __name__ != "parl_lite.cluster":
    raise ImportError(f"this folder is the package parl_lite.cluster, not {__name__!r}: write `import parl_lite.cluster`")
