"""From functions to encoders: programs of a block, their schedule, weights, and what is compiled."""
