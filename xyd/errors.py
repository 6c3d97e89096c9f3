"""The errors a user can cause and mend.

Every message says what is wrong, where (``file:line``, or the name of the key) and what to do about it.
The command line prints ``str(error)`` on stderr and exits with ``error.exit_code``; anything that is not an
``XydError`` is a defect of xyd and keeps its traceback.
"""

from __future__ import annotations


class XydError(Exception):
    """A problem with what the user gave; ``str(error)`` is the whole message and may have several lines."""

    exit_code: int = 2


class ConfigError(XydError):
    """The configuration file or a ``--set`` is wrong, or asks for something that cannot be."""


class DataError(XydError):
    """A corpus, a text file or the prepared data cannot be used as it is."""


class CheckpointError(XydError):
    """A run directory or a checkpoint is missing, damaged, or belongs to another configuration."""


class NumericsError(XydError):
    """Training produced a number that is not finite, and going on would spoil the model."""
