"""From the rules' answers to one verdict: causes, headline, coverage, and what to keep."""
