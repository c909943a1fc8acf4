"""The papers' theorems, evaluated: bounds on the error, and pessimistic choices."""
