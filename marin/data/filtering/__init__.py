"""Signals of a document and the rules that judge them: language, quality, URL, personal data, MinHash bands."""
