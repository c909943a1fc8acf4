"""What the papers prove, evaluated: bounds on the error, and pessimistic choices."""
