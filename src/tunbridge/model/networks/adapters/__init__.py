"""Networks of other frameworks."""
