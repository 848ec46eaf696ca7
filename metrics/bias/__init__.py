"""Group bias: scores of one group, sums over many, the metric, and what a planted bias should look
like.
"""
