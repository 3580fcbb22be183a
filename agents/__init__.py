"""Networks, returns, environments, actor-learner wirings and one file per algorithm. Knows parl_lite, never cluster or zmq."""

if __name__ != "parl_lite.agents":
    raise ImportError(f"this folder is the package parl_lite.agents, not {__name__!r}: write `import parl_lite.agents`")
