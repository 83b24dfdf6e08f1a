"""marin: from a raw crawl to an evaluated language model, each stage a versioned step in one graph."""
