"""NLVR: sentences that people wrote of drawings, judged from the pixels (docs/nlvr.md)."""
