"""Below all rooms: JSON in and out, whole writes, locks, digests, finished work."""
