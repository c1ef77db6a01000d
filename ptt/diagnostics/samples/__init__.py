"""One sample of a run: its tokens, its transcript and its prompt group, and which samples a finding rests on."""
