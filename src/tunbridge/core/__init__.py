"""What every room shares: data, unknowns, the protocols, pytrees as vectors, errors."""
