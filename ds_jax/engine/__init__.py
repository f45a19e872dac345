"""One replica: from token ids to the compiled steps and back."""
