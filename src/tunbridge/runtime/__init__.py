"""The loop that runs every method: batches, chunks of steps, members, progress, checkpoints."""
