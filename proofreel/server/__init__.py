"""The server behind `proofreel serve`: one verifier over HTTP, in batches, within limits. Docs: docs/server.md."""
