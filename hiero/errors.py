"""The error that users see: what is wrong with their input, and what to do."""

import re

# User and password of an address, also one that pathlib has shortened (s3:/…). The secret keys of S3 contain slashes.
# A number after a colon is a port, and "arn:" begins the name of a bucket. abfs://container@account has no user.
CREDENTIALS = re.compile(
    r"(?<![a-zA-Z0-9+.-])(?!(?i:abfss?|wasbs?|az):/{1,2}[^\s/:@]*@)([a-zA-Z0-9+.-]+:/{1,2})"
    r"(?:[^\s/]*@|(?!arn:|\[)[^\s/:@]*:(?!\d+/)(?:(?!://)[^\s@])*@)"
)


def hide_credentials(text: str) -> str:
    """Remove users and passwords from the addresses in a text.

    Examples:
        >>> hide_credentials("cannot read s3://key:SEC/RET@bucket/kitchen.mp4")
        'cannot read s3://bucket/kitchen.mp4'
    """
    return CREDENTIALS.sub(r"\1", text) if "@" in text else text


class InputError(ValueError):
    """Input that cannot be used. The message names the file or argument and says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(hide_credentials(message))


class BusyError(InputError):
    """Another process is using something for too long. The same request can succeed later."""
