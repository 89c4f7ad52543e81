"""PTX kernels whose results on an NVIDIA H200 are committed, and what records and replays them."""
