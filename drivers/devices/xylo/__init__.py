"""SynSense Xylo Audio: the network, its encoder, and the simulator."""
