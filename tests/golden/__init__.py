"""What the commands compute, kept as numbers: see record.py."""
