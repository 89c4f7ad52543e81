"""Which CTA computes which tiles, and which steps of them."""
