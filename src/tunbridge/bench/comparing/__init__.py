"""Methods beside each other on one table: scores, costs, what to recommend, and the report."""
