"""Drafts and their exact verification: see docs/speculation.md."""
