"""Operators with a plain-JAX reference and, where one exists, an accelerator kernel; one file an
operator.
"""
