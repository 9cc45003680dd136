"""Reports: pandas frames, pictures, Markdown, HTML."""

from netlab.report.save import save

__all__ = ["save"]
