"""Reports: pandas frames, pictures, Markdown, HTML."""

import logging

# matplotlib warns of a home folder that it cannot write while it is being imported: no concern of a report's reader.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

from netlab.report.figure import warm_up  # noqa: E402
from netlab.report.save import save, save_document, save_pictures, save_queries, save_reports  # noqa: E402

__all__ = ["save", "save_document", "save_pictures", "save_queries", "save_reports", "warm_up"]
