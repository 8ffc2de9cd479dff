"""Rows for other trainers, and files of claims as people hold them."""
