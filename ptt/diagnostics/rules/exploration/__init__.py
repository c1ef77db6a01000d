"""The table of contents of the rules on what the policy still tries."""
