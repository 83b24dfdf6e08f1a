"""What makes a document's cell in the mixture: a quality bucket by a trained classifier, and a topic by clustering."""
