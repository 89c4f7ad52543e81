"""Where the elements of a tile lie: registers, shared memory, tensor memory."""
