"""The embedded site: documentation of installed packages, rendered as HTML and served on loopback."""
