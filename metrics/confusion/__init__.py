"""Numbers and statistical tests of the confusion probes."""
