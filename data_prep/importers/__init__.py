"""Importers: one module per annotation format, each `read(path, ...)` -> rows and rejections, in file order."""
