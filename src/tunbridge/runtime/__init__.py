"""How a loop is driven: batches, chunks, members, progress, checkpoints."""
