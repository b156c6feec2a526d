"""What all layers share: errors, words, names."""
