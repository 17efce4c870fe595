"""Networks with thousands of clients that remember: a sampled cohort a round, state in a store."""
