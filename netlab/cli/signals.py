"""SIGINT, SIGTERM and SIGHUP end a command as an exception, so that owners release what they hold."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked the command to end. What was measured is saved on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.name = signal.Signals(number).name
        self.exit_code = 128 + number  # the shell's convention


@contextmanager
def translate_signals() -> Iterator[None]:
    """Raise Interrupted in the main thread on the first signal; a second one does not cut the clean-up short.

    A SIGHUP that the parent set to be ignored (nohup) stays ignored.
    """
    seen: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if not seen:
            seen.append(number)
            raise Interrupted(number)

    chosen = [number for number in _HANDLED if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in chosen}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
