"""Steps before an agent may work: locks, ownership, repair."""
