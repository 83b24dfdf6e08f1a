"""marin: from a raw crawl to an evaluated language model, as one graph of content-hashed steps."""
