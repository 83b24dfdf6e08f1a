"""From a site or a list of WARC files to pages of text."""
