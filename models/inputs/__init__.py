"""From a pair to what the network is given: tokens, pixels, positions and windows."""
