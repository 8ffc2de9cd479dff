"""The exceptions this package raises, in one tree.

    ProofreelError
    ├── ConfigError      (ValueError)         a run configuration is wrong
    ├── RowError         (ValueError)         an annotation or data row is wrong
    ├── MediaError       (OSError)            a video, image or transcript cannot be read
    ├── ModelInputError  (ValueError)         a prompt, batch or position grid cannot be built
    ├── DirectoryError   (ValueError)         a verifier directory is damaged, foreign or too new
    ├── CalibrationError (ValueError)         a calibration or threshold cannot be fitted or applied
    ├── RunError         (RuntimeError)       a training run cannot go on (train/faults.py)
    └── StageError       (RuntimeError)       a command of several rounds failed (train/rounds_loop.py)

Each is also a standard-library error, so callers may catch either. Messages read
``<where>: <what is wrong>, got <value>; <what to do>``.
"""


class ProofreelError(Exception):
    """Root of every error raised on purpose by this package."""


class ConfigError(ProofreelError, ValueError):
    """A configuration value is missing, unknown or out of range."""


class RowError(ProofreelError, ValueError):
    """A row of annotations or of a data set breaks the row contract."""


class MediaError(ProofreelError, OSError):
    """A media file is missing, unreadable, or does not hold the span asked for."""


class ModelInputError(ProofreelError, ValueError):
    """The network cannot be given this input."""


class DirectoryError(ProofreelError, ValueError):
    """A verifier directory cannot be trusted or understood."""


class CalibrationError(ProofreelError, ValueError):
    """A calibrator or threshold cannot be fitted or applied."""
