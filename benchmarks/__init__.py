"""What `make bench` measures: ratios taken side by side in one run, on any machine."""
