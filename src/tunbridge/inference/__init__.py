"""How one learns: methods that turn a model and data into a posterior. Families do not know one another."""
