"""The benchmark: suites of tasks, a runner, a store of result rows, and the leaderboard."""
