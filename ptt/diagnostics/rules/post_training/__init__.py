"""The table of contents of the rules on supervised and preference training, where nothing is sampled."""

from ptt.diagnostics.rules.interface import Rule
from ptt.diagnostics.rules.post_training import (
    at_chance,
    kto_imbalance,
    likelihood_falls,
    loss_plateau,
    margin_collapse,
    odds_ratio_unstable,
    overfitting,
    perplexity_spikes,
    preference_plateau,
    preference_unstable,
    rejected_collapse,
)

POST_TRAINING_RULES: tuple[Rule, ...] = (
    at_chance.RULE,
    preference_unstable.RULE,
    preference_plateau.RULE,
    kto_imbalance.RULE,
    margin_collapse.RULE,
    likelihood_falls.RULE,
    rejected_collapse.RULE,
    overfitting.RULE,
    loss_plateau.RULE,
    perplexity_spikes.RULE,
    odds_ratio_unstable.RULE,
)
