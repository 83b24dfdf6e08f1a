"""Documents by way of other libraries."""
