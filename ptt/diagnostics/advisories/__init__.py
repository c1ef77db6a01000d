"""Known bugs and risky settings of training frameworks, as data, and which of them a run or a config has."""
