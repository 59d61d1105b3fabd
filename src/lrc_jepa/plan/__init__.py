"""Planning: rollout, cost, planners, and the receding horizon. Knows the contract, no model."""
