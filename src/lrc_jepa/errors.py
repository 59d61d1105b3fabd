"""The errors a user is meant to see: each message is one clear sentence."""

OVERWRITE = "--overwrite (in Python overwrite=True)"
RESUME = "--resume (in Python resume=True)"
"""What may be said as a flag or as an argument, as messages name it."""


class BadInput(Exception):
    """Something the user gave cannot be used. The command line exits with code 2."""


class Diverged(Exception):
    """Training produced a value that is not finite. The command line exits with code 3."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised where Ctrl-C would be: what is half done is put away on the way out."""


class Interrupted(Exception):
    """The run was asked to stop and has saved its state. The exit code is 128 + the signal's number."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


def one_line(error: BaseException) -> str:
    """What an error says, on one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
