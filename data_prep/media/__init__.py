"""Media files: probing, decoding, a sandbox for decoders, a cache of frames, and a survey of a folder."""
