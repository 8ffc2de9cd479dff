"""Judges that were never trained to verify: behind an endpoint, or a checkpoint on this machine."""
