"""Files that lie elsewhere and are read where they lie: patient streams, unpacked."""
