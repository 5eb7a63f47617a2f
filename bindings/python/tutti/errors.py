"""tutti's errors: one class for each kind. The kind says what the caller can do."""


import builtins


class Error(RuntimeError):
    """Base of all errors of tutti. docs/embedding.md lists the values of `kind`."""

    kind = "internal"


class UsageError(Error, ValueError):
    """The call itself is wrong: correct it. Nothing has happened."""

    kind = "usage"


class UnavailableError(Error):
    """This machine or build cannot do it."""

    kind = "unavailable"


class MismatchError(Error):
    """Ranks called different things, or are set up differently."""

    kind = "mismatch"


class PeerLostError(Error, ConnectionError):
    """A peer's process has ended, or it aborted the communicator."""

    kind = "peer_lost"


class TimeoutError(Error, builtins.TimeoutError):
    """The deadline passed."""

    kind = "timeout"


class CorruptError(Error):
    """Data arrived damaged."""

    kind = "corrupt"


class InternalError(Error):
    """A bug of tutti: please report it."""


BY_KIND = {
    each.kind: each
    for each in (UsageError, UnavailableError, MismatchError, PeerLostError, TimeoutError, CorruptError, InternalError)
}
