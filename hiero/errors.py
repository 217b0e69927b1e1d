"""The error that users see: what is wrong with their input, and what to do."""


class InputError(ValueError):
    """Input that cannot be used. The message names the file or argument and says what to do."""
