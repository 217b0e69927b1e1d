"""The one error that users see: what is wrong with their input, and what to do next."""


class InputError(ValueError):
    """Input that cannot be used. The message names the file or argument and says what would work."""
