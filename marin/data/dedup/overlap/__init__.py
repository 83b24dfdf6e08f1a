"""Overlap of training documents with evaluation items, by n-grams of plain words.

`words` says what a word is; `index` holds the n-grams of all items; `scan` finds them in shards of documents and counts
the texts that have each; `evidence` and `judge` turn hits into verdicts; `report` sums them up by evaluation set, and
`decontaminate` puts it all together. Nothing here is imported while a graph is planned.
"""
