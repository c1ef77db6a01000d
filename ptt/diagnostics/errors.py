"""What a user can mend: the only exceptions that become a sentence instead of a traceback."""


class PttError(Exception):
    """Say in one sentence what is wrong, where, and what to do next."""


class InputError(PttError):
    """The run cannot be read at all."""


class SettingsError(PttError):
    """An option or a key of `ptt.toml` is wrong."""
