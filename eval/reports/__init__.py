"""The report: what is measured, its tables, plots and page, and comparisons."""
