"""Renders a comparison: its page, terminal, JSON and Markdown."""
