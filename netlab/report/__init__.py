"""Reports: pandas frames, pictures, Markdown, HTML."""

from netlab.report.figure import warm_up
from netlab.report.save import save, save_document, save_pictures, save_queries, save_reports

__all__ = ["save", "save_document", "save_pictures", "save_queries", "save_reports", "warm_up"]
