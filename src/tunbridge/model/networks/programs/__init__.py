"""What is read from the program of a network, whoever wrote it."""
