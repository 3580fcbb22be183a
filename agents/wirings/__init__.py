"""How actors and learners work together, one module each. Knows actors, rollouts and the face of parl_lite, no algorithm."""
