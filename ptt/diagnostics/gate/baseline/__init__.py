"""What passing runs looked like: a small text file that is made from them, reviewed, and gated against."""
