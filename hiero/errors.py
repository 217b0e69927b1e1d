"""The error that users see: what is wrong with their input, and what to do."""


class InputError(ValueError):
    """Input that cannot be used. The message names the file or argument and says what to do."""


class BusyError(InputError):
    """Another process is using something for too long. The same request can succeed later."""
