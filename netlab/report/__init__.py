"""Reports: pandas frames, pictures, Markdown, HTML."""

from netlab.report.save import save, save_document, save_queries

__all__ = ["save", "save_document", "save_queries"]
