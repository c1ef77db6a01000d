"""Runs in an object store, and output that goes to one."""
