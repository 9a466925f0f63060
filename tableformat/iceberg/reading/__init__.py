"""Read data files inside merge tasks: deletes applied, columns found by their ids."""
