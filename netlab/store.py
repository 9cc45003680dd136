"""Files: records in and out."""
