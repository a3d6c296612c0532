"""Analysis and transformation of a network's traced program, whatever library the network is written in."""
