"""Tell a run: its report page, terminal, findings.json and postmortem."""
