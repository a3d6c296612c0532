"""The benchmark: suites of tasks, a runner, a store of rows, and its leaderboard."""
