"""The table of contents of the rules on supervised and preference training, where nothing is sampled."""

from ptt.diagnostics.rules.interface import Rule

POST_TRAINING_RULES: tuple[Rule, ...] = ()
