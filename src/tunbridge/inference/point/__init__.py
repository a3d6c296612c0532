"""Point estimates and ensembles of them."""
