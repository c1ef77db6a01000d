"""Runs whose data, tools or tails change in their middle, made from explicit token distributions, and what is true."""
