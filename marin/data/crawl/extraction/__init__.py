"""From HTML to the text of a page, in a child process with a time limit."""
