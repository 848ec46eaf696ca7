"""The lowest layer: JSON in and out, atomic writes, locks, digests, finished work."""
