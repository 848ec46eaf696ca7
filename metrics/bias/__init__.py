"""Group bias: one group, sums over many, the metric, and what a planted bias should look like."""
