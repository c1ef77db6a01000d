"""The one error of this room: a file, or a part of it, that will not be read, and why."""


class RefusedError(Exception):
    """Say in one sentence, without the file's name, why it was not read."""
