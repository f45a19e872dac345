"""Checkpoints in the released layout: read, write, quantise, convert, inspect; orbax to resume."""
