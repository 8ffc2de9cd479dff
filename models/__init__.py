"""Everything that touches the network: prompt, positions, backbone, packing, the verifier directory and `Verifier`."""
