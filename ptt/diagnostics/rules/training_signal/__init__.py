"""The table of contents of the rules on what the reward is turned into."""
