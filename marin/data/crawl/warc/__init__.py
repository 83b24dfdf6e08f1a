"""Reading WARC: records, HTTP responses and their text."""
