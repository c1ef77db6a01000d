"""Tells a comparison: as a page, and in its figures."""
