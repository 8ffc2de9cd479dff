"""One YAML per run and per launch shape; a package only so that an install carries the files."""
