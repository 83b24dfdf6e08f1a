"""From a raw crawl to consolidated documents."""
