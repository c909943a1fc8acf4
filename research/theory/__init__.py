"""The theorems of the papers, evaluated: bounds on the error."""
