"""Watching a run while it trains: tests that may be looked at after every step, under one budget of false stops."""
