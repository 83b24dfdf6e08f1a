"""What a prefix holds and what a graph needs: the index of records, and the plan."""
