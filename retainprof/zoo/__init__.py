"""The models and losses that scenarios name by their kind. Small, plain PyTorch; each file imports torch."""
