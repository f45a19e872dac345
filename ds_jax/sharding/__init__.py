"""Meshes, logical axes, parameter declarations and the collectives of a step."""
