"""The one base of every error that Mycroft raises on purpose."""


class MycroftError(Exception):
    """A mistake that can be told to the user in one line: which input, what was found, what to do.

    The command line prints the message and exits with `exit_code`; no traceback is shown.
    """

    exit_code = 2
