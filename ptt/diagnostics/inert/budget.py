"""What one file may still give; beyond it the file is refused."""

from ptt.diagnostics.inert.refused import RefusedError


class Budget:
    """What one file may still give; shared by the archives inside it."""

    def __init__(self, *, arrays: int, nodes: int, text: int) -> None:
        self._arrays, self._nodes, self._text = arrays, nodes, text

    def array(self, size: int) -> None:
        """Take `size` bytes."""
        self._arrays -= size
        if self._arrays < 0:
            raise RefusedError("its arrays are larger than its size explains")

    def node(self, count: int = 1) -> None:
        """Take `count` values."""
        self._nodes -= count
        if self._nodes < 0:
            raise RefusedError("it holds more values outside of arrays than are read")

    def text(self, size: int) -> None:
        """Take `size` characters."""
        self._text -= size
        if self._text < 0:
            raise RefusedError("it holds more text than is read")
