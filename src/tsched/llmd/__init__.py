"""llm-d's own protocols, so that its clients, its agents and its orchestrators work against ours."""
