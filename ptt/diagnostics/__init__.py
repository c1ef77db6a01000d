"""From a run's files to verdicts."""
